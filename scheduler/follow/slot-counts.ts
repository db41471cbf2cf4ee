/** Requests of each slot by kind: from the gateway, and for earlier days from a file. */
import type { History } from '../forecast/types.ts';
import type { KindCount } from '../live/kind-counts.ts';

/**
 * Maximum number of slots of one model that are kept: three days of minutes, or `atLeast` if that is more. The oldest
 * are dropped first.
 */
const SLOTS_MAX = 4_320;

/** Counts of one model's requests, by the number of slots since the epoch. */
export class SlotCounts {
  readonly #slotS: number;
  readonly #max: number;
  #kinds: readonly string[] = [];
  readonly #slots = new Map<number, readonly number[]>();

  /** `atLeast`: number of slots that a forecast needs. */
  constructor(slotS: number, atLeast: number) {
    this.#slotS = slotS;
    this.#max = Math.max(SLOTS_MAX, atLeast);
  }

  get kinds(): readonly string[] {
    return this.#kinds;
  }

  /** The newest slot with counts. */
  get last(): number | undefined {
    return this.#slots.size === 0 ? undefined : Math.max(...this.#slots.keys());
  }

  /** If the kinds changed, drops all counts, because they were counted by the old kinds. */
  setKinds(kinds: readonly string[]): void {
    if (kinds.join('\n') === this.#kinds.join('\n')) return;
    this.#kinds = kinds;
    this.#slots.clear();
  }

  /**
   * Sets the requests of a slot, in the order of `kinds`. A later count of the same slot replaces an earlier one,
   * because more responses have ended by then.
   */
  set(slot: number, requests: readonly number[]): void {
    this.#slots.delete(slot);
    this.#slots.set(slot, requests);
    if (this.#slots.size <= this.#max) return;
    const oldest = this.#slots.keys().next().value;
    if (oldest !== undefined) this.#slots.delete(oldest);
  }

  /**
   * Adds the gateway's counts of the slots from `from` to `to` (exclusive). A slot without an entry had no request.
   * Requests that no node served have no kind: they are divided among the kinds in proportion to the served requests,
   * or evenly if none was served.
   */
  take(counted: KindCount | undefined, from: number, to: number): void {
    for (let slot = from; slot < to; slot++) {
      const found = counted?.slots.get(slot);
      const served = this.#kinds.map((_, k) => found?.requests[k] ?? 0);
      const sum = served.reduce((all, one) => all + one, 0);
      const unserved = found?.unserved ?? 0;
      this.set(
        slot,
        served.map((one) => one + unserved * (sum > 0 ? one / sum : 1 / served.length)),
      );
    }
  }

  /** The counts of all slots before `end`; NaN for a slot without a count. */
  history(end: number): History {
    const numbers = [...this.#slots.keys()].filter((slot) => slot < end);
    const first = Math.max(
      end - this.#max,
      numbers.reduce((least, slot) => Math.min(least, slot), end),
    );
    const slots = Array.from({ length: end - first }, (_, i) => this.#slots.get(first + i));
    const counts = this.#kinds.map((_, k) => slots.map((requests) => requests?.[k] ?? Number.NaN));
    return { names: this.#kinds, counts, slotS: this.#slotS };
  }
}
