/** Virtual time: planned events, ordered by time and then by the order of planning. */
interface Happening {
  at: number;
  order: number;
  run: () => void;
}

export class Clock {
  /** Milliseconds. */
  now = 0;
  readonly #heap: Happening[] = [];
  #order = 0;

  at(at: number, run: () => void): void {
    const item = { at: Math.max(at, this.now), order: this.#order++, run };
    const heap = this.#heap;
    let i = heap.length;
    heap.push(item);
    while (i > 0) {
      const parent = (i - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || !before(item, above)) break;
      heap[i] = above;
      i = parent;
    }
    heap[i] = item;
  }

  after(ms: number, run: () => void): void {
    this.at(this.now + ms, run);
  }

  /** Runs everything up to `until` (ms); ends early if `stop` returns true. */
  run(until: number, stop?: () => boolean): void {
    for (;;) {
      const next = this.#heap[0];
      if (next === undefined || next.at > until) break;
      this.#pop();
      this.now = next.at;
      next.run();
      if (stop?.()) return;
    }
    this.now = Math.max(this.now, until);
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      const left = heap[child];
      const right = heap[child + 1];
      if (left === undefined) break;
      if (right !== undefined && before(right, left)) child++;
      const best = heap[child];
      if (best === undefined || !before(best, last)) break;
      heap[i] = best;
      i = child;
    }
    heap[i] = last;
  }
}

function before(a: Happening, b: Happening): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}
