/** A queue that waits for a completion asks anew after this: an object that moves loses the question. */
const LISTEN_MS = 10_000;
/** One for each model's queue that this node is busy for. */
const LISTENERS_MAX = 64;

/** Counts the requests that the engine is done with, for queues that wait for the next one. */
export class CompletionCounter {
  #count = 0;
  readonly #listeners = new Set<() => void>();

  /** The count, as soon as it differs from `seen`, or after a while. */
  after(seen: number): Promise<number> {
    if (this.#count !== seen || this.#listeners.size >= LISTENERS_MAX) return Promise.resolve(this.#count);
    return new Promise((resolve) => {
      const tell = () => {
        clearTimeout(timer);
        this.#listeners.delete(tell);
        resolve(this.#count);
      };
      const timer = setTimeout(tell, LISTEN_MS);
      this.#listeners.add(tell);
    });
  }

  add(): void {
    this.#count++;
    for (const tell of this.#listeners) tell();
  }
}
