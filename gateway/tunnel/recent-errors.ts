import type { AttemptFailure } from '../../shared/attempts/attempt-request.ts';
import type { OutboundAttempt } from '../../shared/attempts/outbound-attempt.ts';

const ERRORS_MAX = 20;

/** An attempt that failed at a node: in transit (`code`), or in its engine (`status`). */
export interface NodeError {
  /** When the attempt failed; milliseconds since the epoch. */
  at: number;
  code: AttemptFailure | 'engine_status';
  /** HTTP status of the engine; 0 if none arrived. */
  status: number;
  /** The internal id of the request, as in its usage record. */
  request: string;
}

/**
 * A node's last errors, for operators. They are lost with the object's memory. Facts that must not be lost are in usage
 * records.
 */
export class RecentErrors {
  #errors: NodeError[] = [];

  ended({ status, request }: OutboundAttempt, failure: AttemptFailure | undefined, at: number): void {
    const failed = failure === undefined ? status >= 500 : failure !== 'cancelled';
    if (!failed) return;
    this.#errors.push({ at, code: failure ?? 'engine_status', status, request: request.requestId });
    if (this.#errors.length > ERRORS_MAX) this.#errors.shift();
  }

  /** Returns the errors, newest first. */
  list(): NodeError[] {
    return this.#errors.toReversed();
  }
}
