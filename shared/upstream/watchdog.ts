/**
 * Tells whether a peer that owes us an answer can still be heard. A stopped process, and a path that drops packets, keep the connection open,
 * and an engine may be silent for minutes: so a peer that was silent for `quietMs` is asked for a sign of life, and has `answerMs` to give
 * one. All times are milliseconds of one clock that is never set back.
 */
export class Watchdog {
  readonly #quietMs: number;
  readonly #answerMs: number;
  #heardAt = 0;
  #askedAt: number | undefined;

  constructor(quietMs: number, answerMs: number) {
    this.#quietMs = quietMs;
    this.#answerMs = answerMs;
  }

  /** The peer said something, or owes nothing. */
  heard(now: number): void {
    this.#heardAt = now;
    this.#askedAt = undefined;
  }

  /** Returns `ask` and `gone` once each per silence. */
  look(now: number): 'wait' | 'ask' | 'gone' {
    if (this.#askedAt === undefined) {
      if (now - this.#heardAt < this.#quietMs) return 'wait';
      this.#askedAt = now;
      return 'ask';
    }
    if (now - this.#askedAt < this.#answerMs) return 'wait';
    this.heard(now);
    return 'gone';
  }
}
