import { type AttemptFailure, type AttemptRequest, attemptName } from '../../shared/attempts/attempt-request.ts';
import type { OutboundAttempt } from '../../shared/attempts/outbound-attempt.ts';

/**
 * Maximum failed responses that are remembered. Few are needed at the same time, because a Worker asks for the rest of
 * a cut response immediately.
 */
const BROKEN_RESPONSES_MAX = 256;

interface BrokenResponse {
  code: AttemptFailure;
  /** Bytes of the response that had arrived before the failure. */
  length: number;
}

/**
 * Remembers why responses were cut. If a Worker asks for the rest of such a response, it gets this reason, and the
 * engine does not compute the response again.
 */
export class BrokenResponses {
  /** Failures by attempt name, oldest first. */
  readonly #answers = new Map<string, BrokenResponse>();

  add(attempt: OutboundAttempt, code: AttemptFailure): void {
    this.#answers.set(attemptName(attempt.request), { code, length: attempt.answerLength });
    const oldest = this.#answers.keys().next().value;
    if (this.#answers.size > BROKEN_RESPONSES_MAX && oldest !== undefined) this.#answers.delete(oldest);
  }

  of(open: Pick<AttemptRequest, 'requestId' | 'attempt'>): BrokenResponse | undefined {
    return this.#answers.get(attemptName(open));
  }
}
