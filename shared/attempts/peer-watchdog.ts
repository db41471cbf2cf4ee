/**
 * Detects whether a peer that owes an answer is still reachable. If its process stopped, or the path drops packets, the
 * connection stays open; and an engine may be silent for minutes. So after `quietMs` of silence the peer is pinged, and
 * must reply within `answerMs`. All times are milliseconds of one monotonic clock.
 */
export class PeerWatchdog {
  readonly #quietMs: number;
  readonly #answerMs: number;
  #receivedAt = 0;
  #askedAt: number | undefined;

  constructor(quietMs: number, answerMs: number) {
    this.#quietMs = quietMs;
    this.#answerMs = answerMs;
  }

  /** Call when the peer has sent something, or owes no data. */
  onReceived(now: number): void {
    this.#receivedAt = now;
    this.#askedAt = undefined;
  }

  /**
   * Returns the next action. `ask` means to ping the peer and `gone` that it did not reply; each is returned once per
   * silence. Otherwise `wait`.
   */
  look(now: number): 'wait' | 'ask' | 'gone' {
    if (this.#askedAt === undefined) {
      if (now - this.#receivedAt < this.#quietMs) return 'wait';
      this.#askedAt = now;
      return 'ask';
    }
    if (now - this.#askedAt < this.#answerMs) return 'wait';
    this.onReceived(now);
    return 'gone';
  }
}
