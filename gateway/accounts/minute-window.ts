/** 60 s and the one that is running: so no minute, wherever it begins, holds more than was let through. */
const SLOTS = 61;

/** A count over the last minute, in slots of a second. Pure: seconds are handed in and never go back. */
export class MinuteWindow {
  readonly #slots: number[];
  /** The newest slot's second. */
  #second: number;
  #sum: number;

  constructor(state?: { second: number; slots: number[] }) {
    this.#slots = state?.slots.length === SLOTS ? [...state.slots] : new Array<number>(SLOTS).fill(0);
    this.#second = state?.second ?? 0;
    this.#sum = this.#slots.reduce((a, b) => a + b, 0);
  }

  sum(second: number): number {
    this.#advance(second);
    return this.#sum;
  }

  add(count: number, second: number): void {
    this.#advance(second);
    this.#change(this.#second, count);
  }

  /** Another count for what was added at `then`, if that still counts. More than was reserved counts from now on. */
  correct(difference: number, then: number, second: number): void {
    this.#advance(second);
    if (then > this.#second - SLOTS && then <= this.#second) this.#change(then, difference);
    else if (difference > 0) this.#change(this.#second, difference);
  }

  /** Seconds until `count` more fit under `limit`; 0 if they do now. */
  waitFor(count: number, limit: number, second: number): number {
    this.#advance(second);
    let over = this.#sum + count - limit;
    for (let age = SLOTS - 1; age >= 0 && over > 0; age--) {
      over -= this.#slots[(this.#second - age + SLOTS) % SLOTS] ?? 0;
      if (over <= 0) return SLOTS - age;
    }
    return over > 0 ? SLOTS : 0;
  }

  /** Seconds until nothing is left in it. */
  emptyIn(second: number): number {
    this.#advance(second);
    for (let age = 0; age < SLOTS; age++) {
      if ((this.#slots[(this.#second - age + SLOTS) % SLOTS] ?? 0) !== 0) return SLOTS - age;
    }
    return 0;
  }

  state(): { second: number; slots: number[] } {
    return { second: this.#second, slots: [...this.#slots] };
  }

  #change(second: number, count: number): void {
    const at = second % SLOTS;
    const before = this.#slots[at] ?? 0;
    const after = Math.max(0, before + count);
    this.#slots[at] = after;
    this.#sum += after - before;
  }

  #advance(second: number): void {
    if (second <= this.#second) return;
    if (second - this.#second >= SLOTS) {
      this.#slots.fill(0);
      this.#sum = 0;
    } else {
      for (let passed = this.#second + 1; passed <= second; passed++) this.#change(passed, Number.NEGATIVE_INFINITY);
    }
    this.#second = second;
  }
}
