/** Joins two sockets: counts and paces the bytes, and ends both sockets if they exceed a limit. */
import type { Duplex } from 'node:stream';

/**
 * A limit of `perSecond` bytes on average, with bursts of one second's bytes. Several circuits may share one RateLimit.
 */
export class RateLimit {
  readonly #perSecond: number;
  #remaining: number;
  #at: number;

  constructor(perSecond: number, now: number) {
    this.#perSecond = perSecond;
    this.#remaining = perSecond;
    this.#at = now;
  }

  /** Counts bytes that have been read. Returns for how many milliseconds no more bytes may be read. */
  spend(bytes: number, now: number): number {
    this.#remaining = Math.min(
      this.#perSecond,
      this.#remaining + (Math.max(0, now - this.#at) / 1000) * this.#perSecond,
    );
    this.#at = now;
    this.#remaining -= bytes;
    return this.#remaining >= 0 ? 0 : (-this.#remaining / this.#perSecond) * 1000;
  }
}

interface PipeOptions {
  /** Limits that must all allow a read. */
  paces: readonly RateLimit[];
  maxBytes: number;
  /** After this long without a byte in either direction, both sockets end. */
  idleMs: number;
  /** Called with the length of each chunk that is passed on. */
  onBytes(bytes: number): void;
  /** Called once, with the total number of bytes. */
  onEnd(bytes: number): void;
}

/** Time to send the remaining bytes after one side ended. */
const LINGER_MS = 1_000;

/**
 * Passes all bytes on until either end closes. A slow reader stops the writer: at most two high-water marks of bytes
 * wait here.
 */
export function joinSockets(a: Duplex, b: Duplex, options: PipeOptions): { end(): void } {
  const { paces, maxBytes, idleMs, onBytes, onEnd } = options;
  let [passed, over] = [0, false];
  const timers = new Set<NodeJS.Timeout>();
  const end = () => {
    if (over) return;
    over = true;
    for (const timer of timers) clearTimeout(timer);
    a.destroy();
    b.destroy();
    onEnd(passed);
  };
  const idle = setTimeout(end, idleMs);
  timers.add(idle);
  const pass = (from: Duplex, to: Duplex) => {
    let [full, waits] = [false, false];
    const resume = () => {
      if (!over && !full && !waits) from.resume();
    };
    to.on('drain', () => {
      full = false;
      resume();
    });
    from.on('error', end).on('close', end);
    from.on('end', () => {
      to.end(); // bytes that were already written, such as a reason, still arrive
      timers.add(setTimeout(end, LINGER_MS));
    });
    from.on('data', (piece: Buffer) => {
      if (over) return;
      passed += piece.length;
      onBytes(piece.length);
      if (passed > maxBytes) return end();
      idle.refresh();
      full = !to.write(piece);
      const now = performance.now();
      const waitMs = Math.max(...paces.map((pace) => pace.spend(piece.length, now)));
      if (waitMs > 0) {
        waits = true;
        const timer = setTimeout(() => {
          timers.delete(timer);
          waits = false;
          resume();
        }, waitMs);
        timers.add(timer);
      }
      if (full || waits) from.pause();
    });
    from.resume();
  };
  pass(a, b);
  pass(b, a);
  if (a.destroyed || b.destroyed) end();
  return { end };
}
