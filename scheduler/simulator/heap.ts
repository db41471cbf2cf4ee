interface Node<T> {
  key: number;
  epoch: number;
  item: T;
}

/** A binary heap, lowest key first. The caller bounds the heap: it adds one entry per admitted sequence. */
export class Heap<T> {
  readonly #nodes: Node<T>[] = [];
  readonly #byEpoch: boolean;

  /** `byEpoch`: entries with equal keys come in ascending order of epoch. Otherwise their order is undefined. */
  constructor({ byEpoch = false } = {}) {
    this.#byEpoch = byEpoch;
  }

  get size(): number {
    return this.#nodes.length;
  }

  /** All items, in no particular order. */
  items(): T[] {
    return this.#nodes.map(({ item }) => item);
  }

  peek(): Node<T> | undefined {
    return this.#nodes[0];
  }

  push(key: number, epoch: number, item: T): void {
    const nodes = this.#nodes;
    const node = { key, epoch, item };
    let at = nodes.length;
    nodes.push(node);
    while (at > 0) {
      const up = (at - 1) >> 1;
      const parent = nodes[up];
      if (parent === undefined || !this.#before(node, parent)) break;
      nodes[at] = parent;
      at = up;
    }
    nodes[at] = node;
  }

  pop(): Node<T> | undefined {
    const nodes = this.#nodes;
    const top = nodes[0];
    const last = nodes.pop();
    if (last === undefined || nodes.length === 0) return top;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      const right = left + 1;
      const l = nodes[left];
      if (l === undefined) break;
      const r = nodes[right];
      const [down, child] = r !== undefined && this.#before(r, l) ? [right, r] : [left, l];
      if (!this.#before(child, last)) break;
      nodes[at] = child;
      at = down;
    }
    nodes[at] = last;
    return top;
  }

  #before(a: Node<T>, b: Node<T>): boolean {
    return a.key < b.key || (this.#byEpoch && a.key === b.key && a.epoch < b.epoch);
  }
}
