/** Joins two sockets: bytes are counted, paced and, beyond a bound, the end of both. */
import type { Duplex } from 'node:stream';

/** A pace: `perSecond` on average, a second's worth at once. Shared by all that it is to bound together. */
export class RateLimit {
  readonly #perSecond: number;
  #left: number;
  #at: number;

  constructor(perSecond: number, now: number) {
    this.#perSecond = perSecond;
    this.#left = perSecond;
    this.#at = now;
  }

  /** Bytes that have been read already. Gives the milliseconds for which no more may be read. */
  spend(bytes: number, now: number): number {
    this.#left = Math.min(this.#perSecond, this.#left + (Math.max(0, now - this.#at) / 1000) * this.#perSecond);
    this.#at = now;
    this.#left -= bytes;
    return this.#left >= 0 ? 0 : (-this.#left / this.#perSecond) * 1000;
  }
}

interface PipeOptions {
  /** Each of them has to allow what is read. */
  paces: readonly RateLimit[];
  maxBytes: number;
  /** Without a byte either way for so long, both end. */
  idleMs: number;
  /** Each piece as it is passed on. */
  onBytes(bytes: number): void;
  /** Once. */
  onEnd(bytes: number): void;
}

/** After the end of one side. */
const LINGER_MS = 1_000;

/** Passes everything on until either end is over. A reader that is slow stops the writer: no more than two high-water marks wait here. */
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
    const goOn = () => {
      if (!over && !full && !waits) from.resume();
    };
    to.on('drain', () => {
      full = false;
      goOn();
    });
    from.on('error', end).on('close', end);
    from.on('end', () => {
      to.end(); // what is on its way still arrives: a good-bye
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
          goOn();
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
