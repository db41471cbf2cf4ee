/** Compares the clock of this machine with PostgreSQL's. Pure. */

/** A smaller difference is not logged. */
const TOLERATED_MS = 5_000;

export class DatabaseClock {
  readonly #log: (line: string) => void;
  #isWrong = false;

  constructor(log: (line: string) => void) {
    this.#log = log;
  }

  /**
   * Logs when the clock becomes wrong, and when it is right again. PostgreSQL's time was `databaseMs` at some moment
   * between `sentMs` and `receivedMs`, so a slow statement does not count as a wrong clock. Milliseconds since the
   * epoch.
   */
  compare(databaseMs: number, sentMs: number, receivedMs: number): void {
    const aheadMs = Math.max(0, sentMs - databaseMs) + Math.min(0, receivedMs - databaseMs);
    const isWrong = Math.abs(aheadMs) > TOLERATED_MS;
    if (isWrong === this.#isWrong) return;
    this.#isWrong = isWrong;
    const how = isWrong
      ? `${Math.round(Math.abs(aheadMs) / 1_000)} s ${aheadMs > 0 ? 'ahead of' : 'behind'}`
      : 'again equal to';
    this.#log(`the clock of this machine is ${how} that of PostgreSQL`);
  }
}
