/** A fixed number of slots for concurrent answers, like an engine's batch; further answers wait in order of arrival. */
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

  /**
   * Resolves when this answer has a slot, or its client disconnected; the slot is free again when its connection
   * closes.
   */
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
      // Bounded by the waiting connections: each is removed when it closes.
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
