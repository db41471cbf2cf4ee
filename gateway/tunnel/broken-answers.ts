import { type AttemptFailure, type AttemptRequest, attemptName } from '../../shared/upstream/attempt.ts';
import type { OutboundAttempt } from '../../shared/upstream/outbound-attempt.ts';

/** A Worker asks for the rest at once: a few would do. */
const KEPT_MAX = 256;

interface Broken {
  code: AttemptFailure;
  /** Bytes of the answer that had come. */
  length: number;
}

/** Why answers broke off, for Workers that ask for the rest. The engine is not asked again. */
export class BrokenAnswers {
  /** Oldest first. */
  readonly #answers = new Map<string, Broken>();

  add(upstream: OutboundAttempt, code: AttemptFailure): void {
    this.#answers.set(attemptName(upstream.request), { code, length: upstream.answerLength });
    const oldest = this.#answers.keys().next().value;
    if (this.#answers.size > KEPT_MAX && oldest !== undefined) this.#answers.delete(oldest);
  }

  of(open: Pick<AttemptRequest, 'requestId' | 'attempt'>): Broken | undefined {
    return this.#answers.get(attemptName(open));
  }
}
