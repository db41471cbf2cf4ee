const MINUTE_MS = 60_000;
/** Width of a slot. A count leaves the window at most this much too late. */
const SLOT_MS = 250;
const SLOTS_MAX = MINUTE_MS / SLOT_MS + 1;

interface Slot {
  /** When the newest count was added to the slot, in milliseconds. */
  at: number;
  count: number;
}

/**
 * Pairs `[milliseconds before the state was taken, count]`, oldest first. It contains ages instead of times, because
 * the clock of another process starts at another value.
 */
type MinuteState = [age: number, count: number][];

/**
 * Counts over the last 60 s: no interval of 60 s, wherever it begins, contains more than the limit. Pure: times are
 * passed in, as milliseconds of one clock that is never set back.
 */
export class MinuteWindow {
  /** Slots of the window, oldest first. */
  readonly #slots: Slot[] = [];
  #sum = 0;

  constructor(state: MinuteState = [], now = 0) {
    for (const [age, count] of state.slice(-SLOTS_MAX)) {
      this.#slots.push({ at: now - Math.max(0, age), count: Math.max(0, count) });
      this.#sum += Math.max(0, count);
    }
  }

  sum(now: number): number {
    this.#expire(now);
    return this.#sum;
  }

  add(count: number, now: number): void {
    this.#expire(now);
    this.#sum += count;
    const newest = this.#slots.at(-1);
    if (newest !== undefined && slotOf(newest.at) === slotOf(now)) {
      newest.at = now;
      newest.count += count;
    } else this.#slots.push({ at: now, count });
  }

  /**
   * Changes the count that was added at `then`. If that count has left the window, only an increase is counted, at
   * `now`.
   */
  correct(difference: number, then: number, now: number): void {
    this.#expire(now);
    const slot = this.#slots.findLast(({ at }) => slotOf(at) === slotOf(then));
    if (slot !== undefined) {
      const before = slot.count;
      slot.count = Math.max(0, before + difference);
      this.#sum += slot.count - before;
    } else if (difference > 0) this.add(difference, now);
  }

  /** Milliseconds until `count` more fit below `limit` if nothing else is added; 0 if they fit now. */
  waitFor(count: number, limit: number, now: number): number {
    this.#expire(now);
    let over = this.#sum + count - limit;
    if (over <= 0) return 0;
    for (const slot of this.#slots) {
      over -= slot.count;
      if (over <= 0) return slot.at + MINUTE_MS - now;
    }
    return MINUTE_MS;
  }

  /** Returns milliseconds until the window is empty. */
  emptyIn(now: number): number {
    this.#expire(now);
    const newest = this.#slots.findLast(({ count }) => count > 0);
    return newest === undefined ? 0 : newest.at + MINUTE_MS - now;
  }

  state(now: number): MinuteState {
    this.#expire(now);
    return this.#slots.map(({ at, count }) => [now - at, count]);
  }

  #expire(now: number): void {
    let gone = 0;
    for (const { at, count } of this.#slots) {
      if (at + MINUTE_MS > now) break;
      this.#sum -= count;
      gone++;
    }
    if (gone > 0) this.#slots.splice(0, gone);
  }
}

function slotOf(at: number): number {
  return Math.floor(at / SLOT_MS);
}
