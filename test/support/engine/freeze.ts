/** An engine whose scheduler stands still: what is under way waits until it goes on, or until its client has left. */
import type { ServerResponse } from 'node:http';

export class Freeze {
  #thawed: PromiseWithResolvers<void> | undefined;

  set(frozen: boolean): void {
    if (frozen) this.#thawed ??= Promise.withResolvers();
    else {
      this.#thawed?.resolve();
      this.#thawed = undefined;
    }
  }

  /** Fulfilled when it goes on, or its client has left. */
  async over(res: ServerResponse): Promise<void> {
    while (this.#thawed !== undefined && !res.destroyed) {
      const left = Promise.withResolvers<void>();
      res.once('close', left.resolve);
      await Promise.race([this.#thawed.promise, left.promise]);
      res.off('close', left.resolve);
    }
  }
}
