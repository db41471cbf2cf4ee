import { SOCKET_WINDOW_BYTES, WINDOW_FLOOR_BYTES } from '../../shared/wire/limits.ts';

/** Objects of one class may share an isolate of 128 MB; answers waiting in all of them together stay below this. */
const ISOLATE_WINDOW_BYTES = 48 * 1024 * 1024;

/**
 * Divides the isolate's budget among its sockets: 4 MiB each for up to 12, an equal share for more, the floor in any case.
 * Bound: 48 MiB + 64 KiB per socket, once the windows of older sockets have shrunk to their share.
 */
export class WindowBudget {
  readonly #members = new Set<(window: number) => void>();
  #last = SOCKET_WINDOW_BYTES;

  /** `resize` is called whenever this member's share changes; returns how to leave. */
  join(resize: (window: number) => void): () => void {
    this.#members.add(resize);
    this.#share();
    return () => {
      if (this.#members.delete(resize)) this.#share();
    };
  }

  get window(): number {
    const share = Math.floor(ISOLATE_WINDOW_BYTES / Math.max(1, this.#members.size));
    return Math.max(WINDOW_FLOOR_BYTES, Math.min(SOCKET_WINDOW_BYTES, share));
  }

  #share(): void {
    const { window } = this;
    if (window === this.#last) return;
    this.#last = window;
    for (const resize of this.#members) resize(window);
  }
}

/** Lives as long as the isolate. */
export const isolateBudget = new WindowBudget();
