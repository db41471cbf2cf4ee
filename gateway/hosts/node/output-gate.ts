import { storageHealth } from '../../platform/storage/storage-health.ts';
import type { Database } from './sqlite.ts';

/** Holds an object's messages back until its writes are stored. */
export interface Gate {
  /** True if all writes are stored. */
  readonly settled: boolean;
  /** Call this before a write. */
  write(): void;
  /** Call this after a change outside of the database: of the alarm, or the deletion of the database. */
  noted(): void;
  /** Calls `send` now, or after pending writes are stored. */
  pass(send: () => void): void;
  /** Resolves when all writes are stored; rejects if that failed. Undefined: no write is pending. */
  committed(): Promise<void> | undefined;
  /** Ends the turn. */
  commit(): void;
  abandon(cause: unknown): void;
}

/**
 * Holds an object's messages back until its writes are committed. The first write of a synchronous turn begins a
 * transaction, which is committed at the end of the turn; messages that are sent meanwhile wait for the commit. A
 * transaction over several turns would save little, because a commit takes about 30 µs: with WAL and synchronous=NORMAL
 * it writes without fsync.
 */
export class OutputGate implements Gate {
  readonly #database: Database;
  readonly #onFailure: (error: unknown) => void;
  #open = true;
  /** Messages to send after the commit; at most those of one turn. */
  #waiting: (() => void)[] = [];
  /** Settled by the commit of the open transaction. Undefined while no caller waits for the commit. */
  #committed: PromiseWithResolvers<void> | undefined;

  /** @param onFailure called if the commit failed; messages that waited for it are never sent */
  constructor(database: Database, onFailure: (error: unknown) => void) {
    this.#database = database;
    this.#onFailure = onFailure;
  }

  get settled(): boolean {
    return this.#open;
  }

  write(): void {
    if (!this.#open) return;
    this.#database.begin();
    this.#open = false;
    queueMicrotask(() => this.commit());
  }

  /** This host stores alarms and deletions in files, immediately. */
  noted(): void {}

  pass(send: () => void): void {
    if (this.#open) send();
    else this.#waiting.push(send);
  }

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

  /** Resets the object: the writes of this turn are undone, and messages that waited for them are never sent. */
  abandon(cause: unknown): void {
    if (this.#open) return;
    this.#open = true;
    this.#waiting = [];
    this.#committed?.reject(cause);
    this.#committed = undefined;
    this.#database.rollback();
  }
}
