/** Time-outs are the agent's to keep, who sees the engine. One that does not is not believed in for longer than this. */
const GRACE_MS = 10_000;

/** A socket that breaks again and again without a byte between, so often within so long, breaks because of what is on it. */
const FRUITLESS_MAX = 6;
const FRUITLESS_MS = 20_000;

/** How long one attempt goes on believing that its agent will still say something. Times in milliseconds. */
export class Patience {
  /** When the agent last said something, or owed nothing. */
  #heardAt: number;
  /** When the attempt was opened anew with no more of the answer than the time before. */
  #fruitless: number[] = [];
  #offset = -1;

  constructor(now: number) {
    this.#heardAt = now;
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
