/** A turn without a report by then has found a node. */
const TRIES_MS = 2_000;

interface Waiter {
  since: number;
  /** It was let try, and waits no more if it is not back by then. */
  until: number;
}

/** Who waits in one model's queue, those included that try just now. Bounded by the queue's places. */
export class Waiters {
  /** By name. */
  readonly #known = new Map<string, Waiter>();

  /** It waits, maybe again. */
  enter(name: string, since: number): { tries(now: number): void; leave(): void } {
    const waiter: Waiter = { since, until: Number.POSITIVE_INFINITY };
    this.#known.set(name, waiter);
    return {
      tries: (now) => {
        waiter.until = now + TRIES_MS;
      },
      // Another question of the same request may have taken its place.
      leave: () => {
        if (this.#known.get(name) === waiter) this.#known.delete(name);
      },
    };
  }

  /** `oldestMs`: how long the one waits that began first. */
  count(now: number): { waiting: number; oldestMs: number } {
    let first = now;
    for (const [name, { since, until }] of this.#known) {
      if (until <= now) this.#known.delete(name);
      else if (since < first) first = since;
    }
    return { waiting: this.#known.size, oldestMs: now - first };
  }
}
