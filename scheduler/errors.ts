/** Error codes for scripts: each has its exit code in the command line. */
export type SchedulerErrorCode =
  | 'usage'
  | 'bad_input'
  | 'unknown_gpu'
  | 'unknown_model'
  | 'infeasible'
  | 'solver'
  | 'launcher'
  | 'gateway';

/** An error that an operator can fix; the message says how. */
export class SchedulerError extends Error {
  readonly code: SchedulerErrorCode;
  override readonly name = 'SchedulerError';
  constructor(code: SchedulerErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}
