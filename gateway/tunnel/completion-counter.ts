/**
 * Maximum wait for a completion. After it the queue asks again, because an object that moves to another machine loses
 * its listeners.
 */
const LISTEN_MS = 10_000;
/** Maximum concurrent listeners: one for each model queue that waits for this node. */
const LISTENERS_MAX = 64;

/** Counts the requests that the engine has finished, for queues that wait for the next completion. */
export class CompletionCounter {
  #count = 0;
  readonly #listeners = new Set<() => void>();

  /** Resolves to the count when it differs from `seen`, or after LISTEN_MS. */
  after(seen: number): Promise<number> {
    if (this.#count !== seen || this.#listeners.size >= LISTENERS_MAX) return Promise.resolve(this.#count);
    return new Promise((resolve) => {
      const listener = () => {
        clearTimeout(timer);
        this.#listeners.delete(listener);
        resolve(this.#count);
      };
      const timer = setTimeout(listener, LISTEN_MS);
      this.#listeners.add(listener);
    });
  }

  add(): void {
    this.#count++;
    for (const listener of this.#listeners) listener();
  }
}
