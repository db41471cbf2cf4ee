/** Time-outs are the agent's to keep, who sees the engine. One that does not is not believed in for longer than this. */
const GRACE_MS = 10_000;

/** A socket that breaks again and again without a byte between, so often within so long, breaks because of what is on it. */
const FRUITLESS_MAX = 6;
const FRUITLESS_MS = 20_000;

/** A reader that takes nothing for this long gives way when the socket fills up. */
const STALLED_MS = 500;

/** How long one attempt goes on believing that its agent will still say something, and its reader still read. Times in milliseconds. */
export class Deadlines {
  /** When the attempt fails unless something happens; never once it is accepted and connected. */
  #deadline: number;
  /** When the agent last said something, or owed nothing. */
  #heardAt: number;
  /** When the attempt was opened anew with no more of the answer than the time before. */
  #fruitless: number[] = [];
  #offset = -1;
  /** When the reader last took something. */
  #pulledAt: number;

  /** `acceptMs`: so long an answer to the opening is waited for. */
  constructor(now: number, acceptMs: number) {
    this.#heardAt = now;
    this.#pulledAt = now;
    this.#deadline = now + acceptMs;
  }

  waitUntil(deadline: number): void {
    this.#deadline = deadline;
  }

  /** What was waited for has come. */
  waitNoMore(): void {
    this.#deadline = Number.POSITIVE_INFINITY;
  }

  /** What was waited for did not come in time. */
  isLate(now: number): boolean {
    return now >= this.#deadline;
  }

  pulled(now: number): void {
    this.#pulledAt = now;
  }

  hasStalled(now: number): boolean {
    return now - this.#pulledAt > STALLED_MS;
  }

  /** Since the agent last said something, or owed nothing. */
  silentMs(now: number): number {
    return now - this.#heardAt;
  }

  heard(now: number): void {
    this.#heardAt = now;
  }

  /** Opened on a socket, with `offset` bytes of the answer here. True where it has been often enough. */
  opened(offset: number, now: number): boolean {
    if (offset !== this.#offset) this.#fruitless = [];
    this.#offset = offset;
    this.#fruitless = [...this.#fruitless, now].slice(-FRUITLESS_MAX);
    const [first = now] = this.#fruitless;
    return this.#fruitless.length === FRUITLESS_MAX && now - first < FRUITLESS_MS;
  }

  /** Nothing was heard for longer than the engine may take; `limitMs` 0: it may take any time. */
  isOver(limitMs: number, now: number): boolean {
    return limitMs > 0 && now - this.#heardAt >= limitMs + GRACE_MS;
  }
}
