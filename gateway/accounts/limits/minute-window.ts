const MINUTE_MS = 60_000;
/** What comes within it is one slot: at most 241 slots, and a slot leaves the window at most so much later than its first count. */
const SLOT_MS = 250;
const SLOTS_MAX = MINUTE_MS / SLOT_MS + 1;

interface Slot {
  /** The newest count in it, in milliseconds. */
  at: number;
  count: number;
}

/** `[milliseconds before the state was taken, count]`, oldest first: what another process's clock says of them means nothing. */
export type MinuteState = [age: number, count: number][];

/**
 * A count over the last 60 s: no 60 s, wherever they begin, hold more than was let in. Pure: times are handed in, in milliseconds of
 * one clock that never goes back.
 */
export class MinuteWindow {
  /** Oldest first. */
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

  /** Another count for what was added at `then`. If that has left the window, only what is more than it counts, from now on. */
  correct(difference: number, then: number, now: number): void {
    this.#expire(now);
    const slot = this.#slots.findLast(({ at }) => slotOf(at) === slotOf(then));
    if (slot !== undefined) {
      const before = slot.count;
      slot.count = Math.max(0, before + difference);
      this.#sum += slot.count - before;
    } else if (difference > 0) this.add(difference, now);
  }

  /** Milliseconds until `count` more fit under `limit`, if nothing else comes; 0 if they fit now. */
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

  /** Milliseconds until nothing is left in it. */
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
