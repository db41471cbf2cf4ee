import type { ObjectStorage } from '../platform/object-context.ts';

/** How often floors are signed and old data is dropped. For this alarm the object wakes; it sleeps otherwise. */
const HOUSEKEEPING_MS = 60 * 60_000;

/** An alarm may come so much later than it could. */
const ALARM_SLACK_MS = 1_000;

const HOUSEKEEPING = 'housekeeping';

/** An object has one alarm. Gossip and the hourly housekeeping share it: it is set to the earlier time. */
export class AlarmClock {
  readonly #storage: ObjectStorage;
  /** When the object is to be woken next for gossip. */
  #gossipAt = Number.POSITIVE_INFINITY;

  constructor(storage: ObjectStorage) {
    this.#storage = storage;
  }

  async arm(): Promise<void> {
    const storage = this.#storage;
    let housekeeping = storage.kv.get<number>(HOUSEKEEPING);
    if (housekeeping === undefined) {
      housekeeping = Date.now() + HOUSEKEEPING_MS;
      storage.kv.put(HOUSEKEEPING, housekeeping);
    }
    const due = Math.min(this.#gossipAt, housekeeping);
    const armed = await storage.getAlarm();
    // An alarm that is due, or nearly, arms the next one itself; to move it now would cancel its handler.
    if (armed === null || due < armed - ALARM_SLACK_MS) await storage.setAlarm(due);
  }

  wakeAt(at: number): Promise<void> {
    this.#gossipAt = at;
    return this.arm();
  }

  /** The alarm rings. Gossip's work is due, and gossip then says when it wants to be woken next. */
  rang(): void {
    this.#gossipAt = Number.POSITIVE_INFINITY;
  }

  /** Whether the hour is over; the next one begins then. */
  isHousekeeping(now: number): boolean {
    if ((this.#storage.kv.get<number>(HOUSEKEEPING) ?? 0) > now) return false;
    this.#storage.kv.put(HOUSEKEEPING, now + HOUSEKEEPING_MS);
    return true;
  }
}
