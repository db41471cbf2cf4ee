interface Box<V> {
  value: V | undefined;
}

/**
 * A `Map` for short-lived entries: requests, streams, attempts. Has only the methods that are used here.
 *
 * When V8's `Map` outgrows its table, or has deleted half of it, the old table keeps its entries and points to the new
 * one. After a full collection every live table is in the old generation. From then on, small collections count all
 * tables behind it as reachable, with everything that has passed through them, and copy all of that into the old
 * generation. At thousands of requests a second this causes the next full collection within seconds. Here the tables
 * hold only empty boxes.
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

  /** Oldest first, as in a `Map`. Entries may be set and deleted meanwhile. */
  keys(): MapIterator<K> {
    return this.#boxes.keys();
  }

  *values(): Generator<V> {
    for (const { value } of this.#boxes.values()) if (value !== undefined) yield value;
  }
}
