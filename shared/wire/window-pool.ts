import { WINDOW_POOL_BYTES } from './protocol-constants.ts';

/** Limits the total growth of the windows of all streams of one socket, and thus the bytes that their senders keep. */
export class WindowPool {
  #free = WINDOW_POOL_BYTES;

  get free(): number {
    return this.#free;
  }

  /** Takes up to `bytes` from the pool. Returns the number of bytes taken, which is smaller if fewer are left. */
  take(bytes: number): number {
    const taken = Math.min(bytes, this.#free);
    this.#free -= taken;
    return taken;
  }

  give(bytes: number): void {
    this.#free += bytes;
  }
}
