import type { AttemptFailure } from '../../shared/upstream/attempt.ts';
import type { OutboundAttempt } from '../../shared/upstream/outbound-attempt.ts';

const KEPT = 20;

/** One attempt that went wrong at a node: on its way (`code`), or in its engine (`status`). */
export interface NodeError {
  /** Milliseconds since the epoch. */
  at: number;
  code: AttemptFailure | 'engine_status';
  /** The engine's; 0 where none came. */
  status: number;
  /** Our name of the request, as its record of use has it. */
  request: string;
}

/** A node's last errors, for operators. Lost with the object's memory; the records of use keep what must not be lost. */
export class RecentErrors {
  #errors: NodeError[] = [];

  ended({ status, request }: OutboundAttempt, failure: AttemptFailure | undefined, at: number): void {
    const failed = failure === undefined ? status >= 500 : failure !== 'cancelled';
    if (!failed) return;
    this.#errors.push({ at, code: failure ?? 'engine_status', status, request: request.requestId });
    if (this.#errors.length > KEPT) this.#errors.shift();
  }

  /** The newest first. */
  list(): NodeError[] {
    return this.#errors.toReversed();
  }
}
