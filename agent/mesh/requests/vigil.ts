import { CLAIM } from '../../../shared/upstream/abandoned.ts';
import type { OpenFrame } from '../../../shared/wire/frames.ts';

/**
 * A peer with attempts that says nothing for so long is asked for a sign of life, and has as long to give it: a stopped process
 * and a path that swallows packets keep the connection, and engines may be silent for minutes.
 */
const QUIET_MS = 5_000;

/** Claims what nobody opened: that is answered at once, with RESET unknown, and starts nothing. */
export const SIGN_OF_LIFE: Omit<OpenFrame, 'stream'> = {
  ...CLAIM,
  requestId: 'are-you-there',
  attempt: 0,
  answerOffset: 0,
};

/** Whether somebody who owes us answers is still there. Times in milliseconds. */
export class Vigil {
  #heardAt = 0;
  #askedAt: number | undefined;

  /** It said something, or owes nothing. */
  heard(now: number): void {
    this.#heardAt = now;
    this.#askedAt = undefined;
  }

  /** What is to be done now; `ask` and `gone` are said once. */
  look(now: number): 'wait' | 'ask' | 'gone' {
    if (now - (this.#askedAt ?? this.#heardAt) < QUIET_MS) return 'wait';
    if (this.#askedAt === undefined) {
      this.#askedAt = now;
      return 'ask';
    }
    this.heard(now);
    return 'gone';
  }
}
