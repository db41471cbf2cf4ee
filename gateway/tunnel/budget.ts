import { SOCKET_WINDOW_BYTES, WINDOW_FLOOR_BYTES } from '../../shared/wire/limits.ts';

/** Objects of one class may share an isolate of 128 MB; answers waiting in all of them together stay below this. */
const ISOLATE_WINDOW_BYTES = 48 * 1024 * 1024;

/**
 * Divides the isolate's budget among its sessions: 4 MiB each for up to 12, an equal share for more, the floor in any case.
 * Bound: 48 MiB + 64 KiB per session, once the windows of older sockets have shrunk to their share.
 *
 * No object is told when shares change: each looks when it next reads a message, because an object cannot write to another object's
 * socket. An object that was put to sleep never takes its socket out, so a session counts once: its next socket replaces the old one.
 */
class WindowBudget {
  readonly #members = new Map<string, object>();

  /** Returns how to leave; the session's next socket takes the place of this one. */
  join(session: string): () => void {
    const member = {};
    this.#members.set(session, member);
    return () => {
      if (this.#members.get(session) === member) this.#members.delete(session);
    };
  }

  /** One share, in bytes. */
  get window(): number {
    const share = Math.floor(ISOLATE_WINDOW_BYTES / Math.max(1, this.#members.size));
    return Math.max(WINDOW_FLOOR_BYTES, Math.min(SOCKET_WINDOW_BYTES, share));
  }
}

/** Lives as long as the isolate. */
export const isolateBudget = new WindowBudget();
