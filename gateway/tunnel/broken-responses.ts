import { type AttemptFailure, type AttemptRequest, attemptName } from '../../shared/attempts/attempt-request.ts';
import type { OutboundAttempt } from '../../shared/attempts/outbound-attempt.ts';

/** Maximum failed responses that are remembered. A Worker asks for the rest immediately, so a few would be enough. */
const BROKEN_ANSWERS_MAX = 256;

interface Broken {
  code: AttemptFailure;
  /** Bytes of the response that had arrived before the failure. */
  length: number;
}

/** Remembers why responses were cut, for Workers that ask for the rest. The engine does not compute it again. */
export class BrokenAnswers {
  /** Failures by attempt name, oldest first. */
  readonly #answers = new Map<string, Broken>();

  add(upstream: OutboundAttempt, code: AttemptFailure): void {
    this.#answers.set(attemptName(upstream.request), { code, length: upstream.answerLength });
    const oldest = this.#answers.keys().next().value;
    if (this.#answers.size > BROKEN_ANSWERS_MAX && oldest !== undefined) this.#answers.delete(oldest);
  }

  of(open: Pick<AttemptRequest, 'requestId' | 'attempt'>): Broken | undefined {
    return this.#answers.get(attemptName(open));
  }
}
