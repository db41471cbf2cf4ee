/** The agent enforces the engine's time-outs. If it fails to, this side ends the attempt after this additional time. */
const GRACE_MS = 10_000;

/**
 * If the attempt was opened this often within FRUITLESS_WINDOW_MS and no byte arrived in between, the stream itself is
 * considered the cause of the broken sockets.
 */
const FRUITLESS_RESUMES_MAX = 6;
const FRUITLESS_WINDOW_MS = 20_000;

/** If a reader has taken no bytes for this long, its answer is parked when the socket's window fills up. */
const STALLED_MS = 500;

/** How long one attempt waits for its agent and its reader. All times are milliseconds. */
export class AttemptDeadlines {
  /**
   * The attempt fails at this time if the awaited message has not arrived. Infinite while no message with a deadline is
   * awaited.
   */
  #deadline: number;
  /** When the agent last sent something, or last owed no data. */
  #receivedAt: number;
  /** Times of consecutive openings between which no byte of the answer arrived. */
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

  /** Call when the awaited message has arrived. Removes the deadline. */
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

  /** Milliseconds since the agent last sent something, or last owed no data. */
  silentMs(now: number): number {
    return now - this.#receivedAt;
  }

  onReceived(now: number): void {
    this.#receivedAt = now;
  }

  /**
   * Call when the attempt is opened on a socket; `offset` bytes of the answer have already arrived. Returns true if it
   * has been reopened in vain too often.
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
