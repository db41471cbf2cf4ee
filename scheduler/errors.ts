/** What went wrong, for scripts: each has its own exit code in the command line. */
export type SchedulerErrorCode =
  | 'usage'
  | 'bad_input'
  | 'unknown_gpu'
  | 'unknown_model'
  | 'infeasible'
  | 'solver'
  | 'launcher'
  /** A node that was told to end its deployment has not done so yet. */
  | 'draining'
  | 'busy'
  | 'gateway';

/** Everything here that a person can mend: the message says how. */
export class SchedulerError extends Error {
  readonly code: SchedulerErrorCode;
  override readonly name = 'SchedulerError';
  constructor(code: SchedulerErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
