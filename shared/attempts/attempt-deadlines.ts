/** The agent enforces the engine's time-outs. If it fails to, this side ends the attempt after this additional time. */
const GRACE_MS = 10_000;

/**
 * If sockets break this often within this time and no byte arrives in between, the stream itself is considered the
 * cause.
 */
const FRUITLESS_RESUMES_MAX = 6;
const FRUITLESS_WINDOW_MS = 20_000;

/** An answer with a reader that takes nothing for this long is parked when the socket fills up. */
const STALLED_MS = 500;

/** How long one attempt waits for its agent and its reader. All times are milliseconds. */
export class AttemptDeadlines {
  /**
   * The attempt fails at this time if no message arrives before. Infinite while the attempt is accepted and connected.
   */
  #deadline: number;
  /** When the agent was last heard, or last owed no data. */
  #receivedAt: number;
  /** Times of reopenings that brought no more bytes than the previous one. */
  #fruitless: number[] = [];
  #offset = -1;
  /** When the reader last took bytes. */
  #pulledAt: number;

  /** `acceptMs`: time limit for the acknowledgment of the opening. */
  constructor(now: number, acceptMs: number) {
    this.#receivedAt = now;
    this.#pulledAt = now;
    this.#deadline = now + acceptMs;
  }

  waitUntil(deadline: number): void {
    this.#deadline = deadline;
  }

  /** The awaited message arrived, so the deadline is removed. */
  waitNoMore(): void {
    this.#deadline = Number.POSITIVE_INFINITY;
  }

  /** True if the awaited message did not arrive in time. */
  isLate(now: number): boolean {
    return now >= this.#deadline;
  }

  pulled(now: number): void {
    this.#pulledAt = now;
  }

  hasStalled(now: number): boolean {
    return now - this.#pulledAt > STALLED_MS;
  }

  /** Milliseconds since the agent was last heard, or last owed no data. */
  silentMs(now: number): number {
    return now - this.#receivedAt;
  }

  onReceived(now: number): void {
    this.#receivedAt = now;
  }

  /**
   * The attempt was opened on a socket when `offset` bytes of the answer were here. Returns true if it has been
   * reopened in vain too often.
   */
  opened(offset: number, now: number): boolean {
    if (offset !== this.#offset) this.#fruitless = [];
    this.#offset = offset;
    this.#fruitless = [...this.#fruitless, now].slice(-FRUITLESS_RESUMES_MAX);
    const [first = now] = this.#fruitless;
    return this.#fruitless.length === FRUITLESS_RESUMES_MAX && now - first < FRUITLESS_WINDOW_MS;
  }

  /** True if the agent has been silent for longer than the engine's time limit plus GRACE_MS. `limitMs` 0: no limit. */
  isOver(limitMs: number, now: number): boolean {
    return limitMs > 0 && now - this.#receivedAt >= limitMs + GRACE_MS;
  }
}
