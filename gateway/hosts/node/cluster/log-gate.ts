import type { StorageHealth } from '../../../platform/storage/storage-health.ts';
import type { Gate } from '../output-gate.ts';
import type { ObjectLog } from './object-log.ts';
import type { RecordedDatabase } from './recorded-database.ts';

/** A message, and the number of the turn that must be stored before it is sent. */
interface HeldMessage {
  turn: number;
  send(): void;
}

interface LogGateOptions {
  database: RecordedDatabase;
  log: ObjectLog;
  /** Health of PostgreSQL. */
  health: Pick<StorageHealth, 'failure'>;
  onFailure(error: unknown): void;
}

/**
 * The output gate of an owned object. A turn's messages wait until the log has the turn. While PostgreSQL is away,
 * turns that write fail before they reach this gate, and messages of turns that only read are sent: they may show a
 * turn that is not stored yet.
 */
export class LogGate implements Gate {
  readonly #options: LogGateOptions;
  #inTurn = false;
  #inTransaction = false;
  /** Number of the last turn that wrote something; of the last turn that is stored. */
  #turn = 0;
  #stored = 0;
  /** In order. Bounded by what an object sends between a write and the answer of PostgreSQL. */
  #held: HeldMessage[] = [];
  readonly #failed = Promise.withResolvers<never>();
  #ended = false;

  constructor(options: LogGateOptions) {
    this.#options = options;
    this.#failed.promise.catch(() => {}); // usually no caller waits
  }

  write(): void {
    if (!this.#inTransaction) this.#options.database.begin();
    this.#inTransaction = true;
    this.#begin();
  }

  /** Call this after a change that is part of the log, but not of the database: an alarm, or the deletion of all rows. */
  noted(): void {
    this.#begin();
  }

  #begin(): void {
    if (this.#inTurn) return;
    this.#inTurn = true;
    this.#turn++;
    queueMicrotask(() => this.commit());
  }

  get settled(): boolean {
    return !this.#inTurn && this.#stored === this.#turn;
  }

  #isOpen(turn: number): boolean {
    return turn <= this.#stored || (!this.#inTurn && this.#options.health.failure !== undefined);
  }

  pass(send: () => void): void {
    if (this.#isOpen(this.#turn)) send();
    else this.#held.push({ turn: this.#turn, send });
  }

  committed(): Promise<void> | undefined {
    if (this.#isOpen(this.#turn)) return undefined;
    const passed = new Promise<void>((resolve) => this.#held.push({ turn: this.#turn, send: resolve }));
    return Promise.race([passed, this.#failed.promise]);
  }

  commit(): void {
    if (!this.#inTurn || this.#ended) return;
    this.#inTurn = false;
    try {
      if (this.#inTransaction) this.#options.database.commit();
    } catch (error) {
      this.#options.database.take();
      return this.#fail(error);
    } finally {
      this.#inTransaction = false;
    }
    const turn = this.#turn;
    this.#options.log.commit().then(
      () => this.#onStored(turn),
      (error: unknown) => this.#fail(error),
    );
  }

  #onStored(turn: number): void {
    if (this.#ended) return;
    this.#stored = turn;
    const next = this.#held.findIndex((held) => held.turn > turn);
    const passing = this.#held.splice(0, next === -1 ? this.#held.length : next);
    for (const { send } of passing) send();
  }

  #fail(error: unknown): void {
    if (!this.#ended) this.#options.onFailure(error);
  }

  /** Resets the object: messages that waited are never sent. */
  abandon(cause: unknown): void {
    this.#ended = true;
    this.#held = [];
    this.#failed.reject(cause);
    if (this.#inTransaction) this.#options.database.rollback();
    this.#inTransaction = false;
    this.#inTurn = false;
    this.#options.log.end(cause instanceof Error ? cause : new Error(String(cause)));
  }
}
