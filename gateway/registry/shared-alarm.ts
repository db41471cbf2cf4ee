import type { ObjectStorage } from '../platform/object-context.ts';

/**
 * Interval between housekeeping runs, which sign garbage-collection watermarks and drop old data. The object wakes for
 * this alarm and otherwise sleeps.
 */
const HOUSEKEEPING_MS = 60 * 60_000;

/** If the alarm is set for at most this long after the needed time, it is not moved. */
const ALARM_SLACK_MS = 1_000;

const HOUSEKEEPING = 'housekeeping';

/**
 * Shares the object's only alarm between gossip and the hourly housekeeping: the alarm is set to the earlier of the two
 * times.
 */
export class SharedAlarm {
  readonly #storage: ObjectStorage;
  /** When gossip must wake the object next; milliseconds since the epoch. */
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
    // The handler of an alarm that is due, or nearly due, sets the next one. Moving the alarm now would cancel that
    // handler.
    if (armed === null || due < armed - ALARM_SLACK_MS) await storage.setAlarm(due);
  }

  wakeAt(at: number): Promise<void> {
    this.#gossipAt = at;
    return this.arm();
  }

  /** Called when the alarm fires. Gossip then handles its timers and sets its next time. */
  onAlarm(): void {
    this.#gossipAt = Number.POSITIVE_INFINITY;
  }

  /** Returns true if housekeeping is due, and then also sets the time of the next run. */
  isHousekeeping(now: number): boolean {
    if ((this.#storage.kv.get<number>(HOUSEKEEPING) ?? 0) > now) return false;
    this.#storage.kv.put(HOUSEKEEPING, now + HOUSEKEEPING_MS);
    return true;
  }
}
