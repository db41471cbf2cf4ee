import { WINDOW_POOL_BYTES } from './limits.ts';

/** Limits the growth of the windows of all streams of one socket. This bounds what their senders keep for us. */
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
