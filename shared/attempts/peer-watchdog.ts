/**
 * Tells whether a peer that owes an answer is still reachable. A stopped process or a path that drops packets keeps the
 * connection open, and an engine may be silent for minutes. So after `quietMs` of silence the peer is pinged, and it
 * has `answerMs` to reply. All times are milliseconds of one monotonic clock.
 */
export class Watchdog {
  readonly #quietMs: number;
  readonly #answerMs: number;
  #receivedAt = 0;
  #askedAt: number | undefined;

  constructor(quietMs: number, answerMs: number) {
    this.#quietMs = quietMs;
    this.#answerMs = answerMs;
  }

  /** The peer was heard, or owes nothing. */
  heard(now: number): void {
    this.#receivedAt = now;
    this.#askedAt = undefined;
  }

  /** Returns `ask` and `gone` once each per silence. */
  look(now: number): 'wait' | 'ask' | 'gone' {
    if (this.#askedAt === undefined) {
      if (now - this.#receivedAt < this.#quietMs) return 'wait';
      this.#askedAt = now;
      return 'ask';
    }
    if (now - this.#askedAt < this.#answerMs) return 'wait';
    this.heard(now);
    return 'gone';
  }
}
