import { setTimeout as delay } from 'node:timers/promises';
import { Bucket } from '../../shared/collections/bucket.ts';

/** A place comes free when a transfer ends; beyond this the asker is better off elsewhere. */
const WAIT_MS = 5_000;
/** For each place. */
const WAITING_PER_PLACE = 4;
/** What may leave at once where there is a rate: a tenth of a second of it, and a chunk at the least. */
const BURST_S = 0.1;

/** At most N transfers to other nodes at a time, first come first served, and all of them together below a rate. */
export class Uploads {
  readonly max: number;
  readonly #rate: number | undefined;
  readonly #bucket: Bucket | undefined;
  readonly #burst: number;
  #active = 0;
  /** The most there were at one time. */
  peak = 0;
  bytes = 0;
  /** At most WAITING_PER_PLACE × max. */
  readonly #waiting: (() => void)[] = [];
  #turn: Promise<void> = Promise.resolve();

  constructor(max: number, bytesPerS: number | undefined, chunkBytes: number) {
    this.max = max;
    this.#rate = bytesPerS;
    this.#burst = Math.max(chunkBytes, (bytesPerS ?? 0) * BURST_S);
    this.#bucket = bytesPerS === undefined ? undefined : new Bucket(bytesPerS, this.#burst, performance.now());
  }

  get active(): number {
    return this.#active;
  }

  /** True with a place, which `release` gives back. */
  async take(): Promise<boolean> {
    if (this.#active >= this.max) return this.#wait();
    this.#active++;
    this.peak = Math.max(this.peak, this.#active);
    return true;
  }

  #wait(): Promise<boolean> {
    if (this.#waiting.length >= WAITING_PER_PLACE * this.max) return Promise.resolve(false);
    return new Promise((resolve) => {
      const go = () => {
        clearTimeout(timer);
        resolve(true);
      };
      const timer = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(go), 1);
        resolve(false);
      }, WAIT_MS);
      this.#waiting.push(go);
    });
  }

  release(): void {
    // The place goes to the next one without being free in between.
    const next = this.#waiting.shift();
    if (next === undefined) this.#active--;
    else next();
  }

  /** Resolves when so many bytes may go. */
  async pace(bytes: number): Promise<void> {
    this.bytes += bytes;
    const bucket = this.#bucket;
    if (bucket === undefined || this.#rate === undefined) return;
    // One after the other: two that wait for the same tokens would both find them.
    this.#turn = this.#turn.then(async () => {
      while (!bucket.take(bytes, performance.now())) await delay(Math.max(1, bucket.waitMs(bytes)));
    });
    await this.#turn;
  }
}
