/** Room for a fixed number of answers at once, as an engine's batch has; the others wait in the order they came. */
import type { ServerResponse } from 'node:http';

export class Slots {
  readonly #size: number;
  #taken = 0;
  readonly #queue = new Set<() => void>();

  constructor(size: number) {
    this.#size = size;
  }

  get taken(): number {
    return this.#taken;
  }

  get waiting(): number {
    return this.#queue.size;
  }

  /** Fulfilled when there is room for this answer, or it is wanted no more; the room is free again when its connection is done with it. */
  take(res: ServerResponse): Promise<void> {
    if (res.destroyed) return Promise.resolve();
    if (this.#taken < this.#size) {
      this.#enter(res);
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const gone = () => {
        this.#queue.delete(enter);
        resolve();
      };
      const enter = () => {
        res.off('close', gone);
        this.#enter(res);
        resolve();
      };
      // Bounded by the connections that wait: each leaves when it closes.
      this.#queue.add(enter);
      res.once('close', gone);
    });
  }

  #enter(res: ServerResponse): void {
    this.#taken++;
    res.once('close', () => {
      this.#taken--;
      const [next] = this.#queue;
      if (next === undefined) return;
      this.#queue.delete(next);
      next();
    });
  }
}
