/**
 * The agent enforces time-outs, because it sees the engine. If it does not, this side ends the attempt after this
 * additional time.
 */
const GRACE_MS = 10_000;

/** If sockets break this often within this time without a byte between, the stream itself is the cause. */
const FRUITLESS_RESUMES_MAX = 6;
const FRUITLESS_WINDOW_MS = 20_000;

/** A reader that takes nothing for this long is parked when the socket fills up. */
const STALLED_MS = 500;

/** How long one attempt keeps waiting for its agent and its reader. Times in milliseconds. */
export class Deadlines {
  /** When the attempt fails unless something happens; never while it is accepted and connected. */
  #deadline: number;
  /** When the agent was last heard, or owed nothing. */
  #receivedAt: number;
  /** Times of reopenings that had no more of the answer than the one before. */
  #fruitless: number[] = [];
  #offset = -1;
  /** When the reader last took something. */
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

  /** The expected message arrived. */
  waitNoMore(): void {
    this.#deadline = Number.POSITIVE_INFINITY;
  }

  /** The expected message did not arrive in time. */
  isLate(now: number): boolean {
    return now >= this.#deadline;
  }

  pulled(now: number): void {
    this.#pulledAt = now;
  }

  hasStalled(now: number): boolean {
    return now - this.#pulledAt > STALLED_MS;
  }

  /** Milliseconds since the agent was last heard, or owed nothing. */
  silentMs(now: number): number {
    return now - this.#receivedAt;
  }

  heard(now: number): void {
    this.#receivedAt = now;
  }

  /**
   * The attempt was opened on a socket, with `offset` bytes of the answer here. Returns true if it has been reopened in
   * vain too often.
   */
  opened(offset: number, now: number): boolean {
    if (offset !== this.#offset) this.#fruitless = [];
    this.#offset = offset;
    this.#fruitless = [...this.#fruitless, now].slice(-FRUITLESS_RESUMES_MAX);
    const [first = now] = this.#fruitless;
    return this.#fruitless.length === FRUITLESS_RESUMES_MAX && now - first < FRUITLESS_WINDOW_MS;
  }

  /** True if the agent has been silent for longer than the engine may take. `limitMs` 0: no limit. */
  isOver(limitMs: number, now: number): boolean {
    return limitMs > 0 && now - this.#receivedAt >= limitMs + GRACE_MS;
  }
}
