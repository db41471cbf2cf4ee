interface Box<V> {
  value: V | undefined;
}

/**
 * A `Map` for short-lived entries: requests, streams, attempts. Has only the methods that are used here.
 *
 * When V8's `Map` outgrows its table, or after half of its entries were deleted, V8 makes a new table. The old table
 * keeps its entries and points to the new table. After a full collection the current table is in the old generation.
 * From then on, small collections treat all later tables as reachable, and with them every value that they ever held,
 * and copy these values into the old generation. At thousands of requests a second this causes the next full collection
 * within seconds. Here a table refers only to boxes, and `delete` empties the box.
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

  /** Oldest first, as in a `Map`. Entries may be set and deleted during the iteration. */
  keys(): MapIterator<K> {
    return this.#boxes.keys();
  }

  *values(): Generator<V> {
    for (const { value } of this.#boxes.values()) if (value !== undefined) yield value;
  }
}
