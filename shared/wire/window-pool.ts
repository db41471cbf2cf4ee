import { WINDOW_POOL_BYTES } from './limits.ts';

/** What the windows of one socket's streams may grow by, all of them together. Bounds what their senders keep for us. */
export class WindowPool {
  #free = WINDOW_POOL_BYTES;

  get free(): number {
    return this.#free;
  }

  /** As much of `bytes` as there is. */
  take(bytes: number): number {
    const taken = Math.min(bytes, this.#free);
    this.#free -= taken;
    return taken;
  }

  give(bytes: number): void {
    this.#free += bytes;
  }
}
