/**
 * The members of one cluster in the order of their ids, which are hashes. Members with the same knowledge see the same
 * ring. So pushes along the ring reach all of them, even if random pushes miss some (RingCast, Voulgaris & van Steen
 * 2007).
 */
export class ClusterRing {
  /** Sorted by id. Bounded by the replica, which limits the number of sessions. */
  readonly #sessions: string[] = [];

  get size(): number {
    return this.#sessions.length;
  }

  [Symbol.iterator](): IterableIterator<string> {
    return this.#sessions.values();
  }

  has(session: string): boolean {
    return this.#sessions[this.#position(session)] === session;
  }

  /** @returns true if the session was not in the ring */
  add(session: string): boolean {
    const at = this.#position(session);
    if (this.#sessions[at] === session) return false;
    this.#sessions.splice(at, 0, session);
    return true;
  }

  remove(session: string): boolean {
    const at = this.#position(session);
    if (this.#sessions[at] !== session) return false;
    this.#sessions.splice(at, 1);
    return true;
  }

  /**
   * Members after (`step` 1) or before (-1) `session`, nearest first. `session` is excluded, and need not be a member.
   */
  *from(session: string, step: 1 | -1): Generator<string> {
    const size = this.#sessions.length;
    const position = this.#position(session);
    const start = this.#sessions[position] === session || step === -1 ? position : position - 1;
    for (let i = 1; i <= size; i++) {
      const other = this.#sessions[(((start + step * i) % size) + size) % size];
      if (other !== undefined && other !== session) yield other;
    }
  }

  at(index: number): string | undefined {
    return this.#sessions[index];
  }

  /** Position of `session` in the ring, or of the first member after it. */
  #position(session: string): number {
    let low = 0;
    let high = this.#sessions.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#sessions[middle] ?? '') < session) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
