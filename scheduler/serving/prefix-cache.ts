/**
 * The prefix cache of one replica, like vLLM's automatic prefix caching: blocks of prompts by their chained hash.
 * Sequences with equal beginnings share blocks. Blocks are kept until the memory is needed and evicted in order of last
 * use. A hash identifies its block and all previous ones.
 *
 * Its owner counts memory: `reserve` and `release` return how many blocks were pinned or unpinned. Unpinned blocks
 * count as free, so the owner calls `trim` with the free number before each lookup. Bounded by the memory that it
 * represents.
 */
export class PrefixCache {
  /** Number of sequences that use a block; 0: kept for the next sequence. In order of last use. */
  readonly #users = new Map<number, number>();
  #idle = 0;

  /** Blocks that no sequence uses. */
  get idle(): number {
    return this.#idle;
  }

  /** Number of first hashes that are present. */
  match(hashes: readonly number[]): number {
    let found = 0;
    while (found < hashes.length && this.#users.has(hashes[found] ?? 0)) found++;
    return found;
  }

  /** A sequence begins to use the first `count` blocks, which are present. Returns how many of them were idle. */
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

  /** A sequence has computed the blocks from `from` on; new blocks become its own. Returns their hashes. */
  add(hashes: readonly number[], from: number): number[] {
    const added: number[] = [];
    for (const hash of hashes.slice(from)) {
      if (this.#users.has(hash)) continue;
      this.#users.set(hash, 1);
      added.push(hash);
    }
    return added;
  }

  /** A sequence ends. Returns how many of its blocks are now unused. */
  release(hashes: readonly number[]): number {
    let idle = 0;
    // The last block first, so that it is evicted before the blocks on which it depends.
    for (const hash of [...hashes].reverse()) {
      const users = this.#users.get(hash);
      if (users === undefined) continue;
      if (users === 1) idle++;
      this.#touch(hash, users - 1);
    }
    this.#idle += idle;
    return idle;
  }

  /** Evicts idle blocks in order of last use until at most `room` are left. */
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
