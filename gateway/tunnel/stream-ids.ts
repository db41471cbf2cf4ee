import type { KeyValue } from '../object-context.ts';

/** Numbers reserved at once: one row written per this many streams. */
const BLOCK = 4096;

/**
 * Stream numbers of one session. They never repeat, not after hibernation, not after a crash: a late frame of an old stream can
 * then never be taken for one of a new stream. Survives in storage: the end of the reserved block.
 */
export class StreamIds {
  readonly #kv: KeyValue;
  #next: number;
  #reserved: number;

  constructor(kv: KeyValue) {
    this.#kv = kv;
    this.#next = kv.get<number>('streams') ?? 1;
    this.#reserved = this.#next;
  }

  next(): number {
    if (this.#next >= this.#reserved) {
      this.#reserved = this.#next + BLOCK;
      this.#kv.put('streams', this.#reserved);
    }
    return this.#next++;
  }
}
