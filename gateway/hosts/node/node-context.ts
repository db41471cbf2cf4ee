import { errorText } from '../../../shared/text/error-text.ts';
import type { ObjectHandlers } from '../../platform/gateway-object.ts';
import type { Clock, ObjectContext, ObjectStorage } from '../../platform/object-context.ts';
import { ResilientStorage } from '../../platform/storage/resilient-storage.ts';
import { type StorageHealth, storageHealth } from '../../platform/storage/storage-health.ts';
import { NodeSockets } from './node-sockets.ts';
import type { ObjectAlarm } from './object-alarms.ts';
import { NodeStorage } from './object-storage.ts';
import { type Gate, OutputGate } from './output-gate.ts';
import type { Database } from './sqlite.ts';

/** Timers of one object. They end with the object, and a timer that throws resets it. */
class NodeClock implements Clock {
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #guard: (work: () => void) => void;

  constructor(guard: (work: () => void) => void) {
    this.#guard = guard;
  }

  readonly now = (): number => Date.now();

  readonly after = (ms: number, onTimer: () => void): (() => void) => {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      this.#guard(onTimer);
    }, ms);
    return this.#keep(timer);
  };

  readonly every = (ms: number, onTimer: () => void): (() => void) =>
    this.#keep(setInterval(() => this.#guard(onTimer), ms));

  #keep(timer: NodeJS.Timeout): () => void {
    this.#timers.add(timer);
    return () => {
      clearTimeout(timer);
      this.#timers.delete(timer);
    };
  }

  get pending(): number {
    return this.#timers.size;
  }

  stop(): void {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
  }
}

interface ContextOptions {
  name: string;
  database: Database;
  alarm: ObjectAlarm;
  handlers(): ObjectHandlers;
  /** Called if the object must be reset: a handler threw, or the object's file cannot be written. */
  failed(cause: unknown): void;
  /** Health of the object's storage. Default: the health of this process's disk, which its objects share. */
  health?: StorageHealth;
  /** Makes the object's gate. Default: a gate that waits for the commit of the object's file. */
  gate?(onFailure: (error: unknown) => void): Gate;
}

/** The context of one object instance. */
export class NodeContext implements ObjectContext {
  readonly name: string;
  readonly storage: ObjectStorage;
  readonly health: StorageHealth;
  readonly sockets: NodeSockets;
  readonly clock: NodeClock;
  readonly gate: Gate;
  readonly #database: Database;
  readonly #failed: (cause: unknown) => void;
  #background = 0;
  #finished = false;

  constructor({ name, database, alarm, handlers, failed, health = storageHealth, gate }: ContextOptions) {
    this.name = name;
    this.health = health;
    this.#database = database;
    this.#failed = failed;
    const onFailure = (error: unknown) => {
      health.failed(error, Date.now());
      failed(error);
    };
    this.gate = gate?.(onFailure) ?? new OutputGate(database, onFailure);
    this.clock = new NodeClock((work) => this.#guard(work));
    const runAlarm = () => this.waitUntil(Promise.resolve(handlers().alarm?.()));
    this.storage = new ResilientStorage(new NodeStorage(database, this.gate, alarm), health, this.clock, runAlarm);
    this.sockets = new NodeSockets(this.gate, handlers, (work) => this.#guard(work));
  }

  waitUntil(work: Promise<unknown>): void {
    this.#background++;
    const finished = () => {
      this.#background--;
    };
    work.then(finished, (error: unknown) => {
      finished();
      console.error(`background task of ${this.name} failed: ${errorText(error)}`);
    });
  }

  #guard(work: () => void): void {
    if (this.#finished) return;
    try {
      work();
    } catch (error) {
      this.#failed(error);
    }
  }

  /** True if the object has work in progress, so that its memory must be kept. */
  get busy(): boolean {
    return this.#background > 0 || this.clock.pending > 0 || this.sockets.size > 0 || !this.gate.settled;
  }

  /** When the object last used its open file, in milliseconds since 1970; undefined: the file is not open. */
  get fileUsedAt(): number | undefined {
    return this.#database.usedAt;
  }

  /** Closes the object's file; the next use opens it. */
  rest(): void {
    this.gate.commit();
    this.#database.close();
  }

  /**
   * Ends the instance. If there is a `cause`, the object is reset and the writes of its last turn are undone; otherwise
   * they are committed.
   */
  end(cause?: unknown): void {
    this.#finished = true;
    try {
      if (cause === undefined) this.gate.commit();
      else this.gate.abandon(cause);
      this.clock.stop();
      this.sockets.abort();
    } finally {
      this.#database.end();
    }
  }
}
