interface Box<V> {
  value: V | undefined;
}

/**
 * A `Map` for short-lived entries: requests, streams, attempts. Supports the subset that is used here.
 *
 * When V8's own `Map` outgrows its table, or has deleted half of it, the old table keeps its entries and points to the
 * new one. Once such a table is in the old generation, as every live one is after a full collection, all tables behind
 * it count as reachable in small collections, together with everything that has passed through. All of that is then
 * copied into the old generation, too, which at thousands of requests a second causes the next full collection within
 * seconds. Here the tables hold only empty boxes.
 */
export class TransientMap<K, V> {
  readonly #boxes = new Map<K, Box<V>>();

  get size(): number {
    return this.#boxes.size;
  }

  has(key: K): boolean {
    return this.#boxes.has(key);
  }

  get(key: K): V | undefined {
    return this.#boxes.get(key)?.value;
  }

  set(key: K, value: V): void {
    const box = this.#boxes.get(key);
    if (box === undefined) this.#boxes.set(key, { value });
    else box.value = value;
  }

  delete(key: K): boolean {
    const box = this.#boxes.get(key);
    if (box === undefined) return false;
    box.value = undefined;
    return this.#boxes.delete(key);
  }

  clear(): void {
    for (const box of this.#boxes.values()) box.value = undefined;
    this.#boxes.clear();
  }

  /** Oldest first, as in a `Map`; entries may be set and deleted meanwhile. */
  keys(): MapIterator<K> {
    return this.#boxes.keys();
  }

  *values(): Generator<V> {
    for (const { value } of this.#boxes.values()) if (value !== undefined) yield value;
  }
}
