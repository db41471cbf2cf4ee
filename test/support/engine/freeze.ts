/** Simulates an engine with a stalled scheduler: running requests wait until it resumes or their client disconnects. */
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

  /** Resolves when the engine is not frozen any more, or when the client has disconnected. */
  async over(res: ServerResponse): Promise<void> {
    while (this.#thawed !== undefined && !res.destroyed) {
      const left = Promise.withResolvers<void>();
      res.once('close', left.resolve);
      await Promise.race([this.#thawed.promise, left.promise]);
      res.off('close', left.resolve);
    }
  }
}
