/**
 * The prefix cache of one replica, as vLLM's automatic prefix caching: blocks of prompts by their chained hash, shared by the sequences
 * that begin alike, kept until the memory is needed, dropped least recently used first. A hash stands for its block and all before it.
 *
 * Memory is counted by its owner: `reserve` and `release` say how many units of blocks were pinned or unpinned. Unpinned ones count as
 * free, so the owner calls `trim` with what is free before it looks anything up. Bounded by the memory it stands for.
 */
export class PrefixCache {
  /** Sequences that use a block; 0: kept for the next one. In order of last use. */
  readonly #users = new Map<number, number>();
  #idle = 0;

  /** Blocks that no sequence uses. */
  get idle(): number {
    return this.#idle;
  }

  /** How many of the first hashes are there. */
  match(hashes: readonly number[]): number {
    let found = 0;
    while (found < hashes.length && this.#users.has(hashes[found] ?? 0)) found++;
    return found;
  }

  /** A sequence begins to use the first `count` blocks, which are there. Returns how many were idle until now. */
  reserve(hashes: readonly number[], count: number): number {
    if (count === 0) return 0;
    let woken = 0;
    for (const hash of hashes.slice(0, count)) {
      const users = this.#users.get(hash) ?? 0;
      if (users === 0) woken++;
      this.#touch(hash, users + 1);
    }
    this.#idle -= woken;
    return woken;
  }

  /** A sequence has computed the blocks from `from` on: those that are new are its own. Returns their hashes. */
  add(hashes: readonly number[], from: number): number[] {
    const added: number[] = [];
    for (const hash of hashes.slice(from)) {
      if (this.#users.has(hash)) continue;
      this.#users.set(hash, 1);
      added.push(hash);
    }
    return added;
  }

  /** A sequence ends. Returns how many of its blocks no sequence uses now. */
  release(hashes: readonly number[]): number {
    let idle = 0;
    // The last block first, so that it is dropped before those that it hangs on.
    for (const hash of [...hashes].reverse()) {
      const users = this.#users.get(hash);
      if (users === undefined) continue;
      if (users === 1) idle++;
      this.#touch(hash, users - 1);
    }
    this.#idle += idle;
    return idle;
  }

  /** Drops idle blocks, the least recently used first, until at most `room` are left. */
  trim(room: number): void {
    if (this.#idle <= room) return;
    for (const [hash, users] of this.#users) {
      if (this.#idle <= Math.max(0, room)) return;
      if (users > 0) continue;
      this.#users.delete(hash);
      this.#idle--;
    }
  }

  #touch(hash: number, users: number): void {
    this.#users.delete(hash);
    this.#users.set(hash, users);
  }
}
