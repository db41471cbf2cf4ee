import { storageHealth } from '../../storage/health.ts';
import type { Database } from './sqlite.ts';

/**
 * Keeps what an object says behind what it has written. The first write of a synchronous turn begins a transaction, which is committed
 * when the turn is over; what the object sends meanwhile waits for that. With WAL and synchronous=NORMAL a commit is a write without
 * fsync, some 30 µs, so that no longer batching pays.
 */
export class OutputGate {
  readonly #database: Database;
  readonly #onFailure: (error: unknown) => void;
  #open = true;
  /** What leaves at the commit: at most what one turn says. */
  #waiting: (() => void)[] = [];
  /** Of the open transaction; undefined while no caller waits for it. */
  #committed: PromiseWithResolvers<void> | undefined;

  /** `onFailure`: the commit failed, and what waited for it will never leave. */
  constructor(database: Database, onFailure: (error: unknown) => void) {
    this.#database = database;
    this.#onFailure = onFailure;
  }

  /** Something is about to be written. */
  write(): void {
    if (!this.#open) return;
    this.#database.begin();
    this.#open = false;
    queueMicrotask(() => this.commit());
  }

  /** Calls `send` at once, or behind the commit of what was written. */
  pass(send: () => void): void {
    if (this.#open) send();
    else this.#waiting.push(send);
  }

  /** Resolves when all that was written is committed; rejects where it could not be. Undefined: nothing waits. */
  committed(): Promise<void> | undefined {
    if (this.#open) return undefined;
    this.#committed ??= Promise.withResolvers();
    return this.#committed.promise;
  }

  commit(): void {
    if (this.#open) return;
    const [waiting, committed] = [this.#waiting, this.#committed];
    this.#waiting = [];
    this.#committed = undefined;
    this.#open = true;
    try {
      this.#database.commit();
    } catch (error) {
      storageHealth.failed(error, Date.now());
      committed?.reject(error);
      return this.#onFailure(error);
    }
    committed?.resolve();
    for (const send of waiting) send();
  }

  /** The object is reset: what it wrote in this turn is undone, and what waited for that never leaves. */
  abandon(cause: unknown): void {
    if (this.#open) return;
    this.#open = true;
    this.#waiting = [];
    this.#committed?.reject(cause);
    this.#committed = undefined;
    this.#database.rollback();
  }
}
