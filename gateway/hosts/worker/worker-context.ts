import type { Clock, ObjectContext, ObjectSockets, ObjectStorage } from '../../platform/object-context.ts';
import { startTimer } from '../../platform/start-timer.ts';
import { ResilientStorage } from '../../platform/storage/resilient-storage.ts';
import { type StorageHealth, storageHealth } from '../../platform/storage/storage-health.ts';
import { HibernatingSockets } from './hibernating-sockets.ts';

const clock: Clock = {
  now: () => Date.now(),
  after: startTimer,
  every(ms, onTimer) {
    const timer = setInterval(onTimer, ms);
    return () => clearInterval(timer);
  },
};

/** A Durable Object's state as an ObjectContext. The runtime itself fulfills the guarantees of ObjectContext. */
export class WorkerContext implements ObjectContext {
  readonly name: string;
  readonly storage: ObjectStorage;
  /** Each Durable Object has its own storage, so each has a separate health. */
  readonly health: StorageHealth;
  readonly clock = clock;
  readonly #state: DurableObjectState;
  #sockets: ObjectSockets | undefined;

  /** @param runAlarm runs the alarm */
  constructor(state: DurableObjectState, runAlarm: () => void) {
    this.name = state.id.name ?? '';
    this.health = storageHealth.part(this.name);
    this.storage = new ResilientStorage(state.storage, this.health, clock, runAlarm);
    this.#state = state;
  }

  /** Created on first use: objects without sockets have no heartbeats to answer. */
  get sockets(): ObjectSockets {
    this.#sockets ??= new HibernatingSockets(this.#state);
    return this.#sockets;
  }

  waitUntil(work: Promise<unknown>): void {
    this.#state.waitUntil(work);
  }
}
