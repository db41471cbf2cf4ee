import type { KeyValue, ObjectContext } from '../platform/object-context.ts';
import type { StorageHealth } from '../platform/storage/storage-health.ts';

/** Stream numbers that are reserved together: one row is written per this many streams. */
const BLOCK = 4096;

/**
 * If several processes have sockets of one session, each gives numbers from its own range. Ranges end below 2^50, which
 * is below all numbers derived from the time.
 */
const NUMBERS_PER_PROCESS = 2 ** 32;

/** Numbers derived from the time stay below 2^53 for two hundred years. */
const NUMBERS_PER_MS = 1_024;

/**
 * Stream numbers of one session. They never repeat, even after hibernation or a crash, so a late frame of an old stream
 * is never mistaken for a frame of a new stream. The end of the reserved block is stored.
 */
export class StreamIds {
  readonly #kv: KeyValue;
  readonly #health: StorageHealth;
  #next: number;
  #reserved: number;

  /** @param process number of this process; 0: it is the only one */
  constructor({ storage, health }: Pick<ObjectContext, 'storage' | 'health'>, process = 0) {
    this.#kv = storage.kv;
    this.#health = health;
    this.#next = this.#kv.get<number>('streams') ?? process * NUMBERS_PER_PROCESS + 1;
    this.#reserved = this.#next;
  }

  next(): number {
    if (this.#next >= this.#reserved) {
      // While the disk fails, the reserved block is not stored, so its numbers would be used again after a crash.
      // Numbers derived from the time are above all earlier numbers.
      if (this.#health.failure !== undefined) this.#next = Math.max(this.#next, Date.now() * NUMBERS_PER_MS);
      this.#reserved = this.#next + BLOCK;
      this.#kv.put('streams', this.#reserved);
    }
    return this.#next++;
  }
}
