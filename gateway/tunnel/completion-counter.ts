/** Who waits for an end asks anew after this: an object that moves takes the question with it. */
const LISTEN_MS = 10_000;
/** One for each model's queue that this node is busy for. */
const LISTENERS_MAX = 64;

/** Requests that the engine was done with, counted, for queues that wait for the next of them. */
export class CompletionCounter {
  #count = 0;
  readonly #listeners = new Set<() => void>();

  /** How many there were, as soon as they are not `seen`, or after a while. */
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
