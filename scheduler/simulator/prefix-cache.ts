/**
 * The prefix cache of one replica, like vLLM's automatic prefix caching. It holds blocks of prompts by their chained
 * hash, which identifies a block and all blocks before it, so that sequences with equal beginnings share blocks. Blocks
 * are kept until the memory is needed, and are then evicted in order of last use.
 *
 * The owner of the cache counts memory: `reserve` and `release` return how many blocks were pinned or unpinned.
 * Unpinned blocks count as free, so the owner calls `trim` with the number of free blocks before each lookup. Bounded
 * by the memory that it represents.
 */
export class PrefixCache {
  /** Number of sequences that use each block, in order of last use; 0: the block is kept for later sequences. */
  readonly #users = new Map<number, number>();
  #idle = 0;

  /** Number of blocks that no sequence uses. */
  get idle(): number {
    return this.#idle;
  }

  /** Number of leading hashes that are in the cache. */
  match(hashes: readonly number[]): number {
    let found = 0;
    while (found < hashes.length && this.#users.has(hashes[found] ?? 0)) found++;
    return found;
  }

  /**
   * Pins the first `count` blocks for a new sequence. The blocks must be in the cache. Returns how many of these blocks
   * no other sequence uses.
   */
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

  /**
   * Adds the blocks from index `from` on, which a sequence has computed. Returns the hashes of blocks that were new.
   */
  add(hashes: readonly number[], from: number): number[] {
    const added: number[] = [];
    for (const hash of hashes.slice(from)) {
      if (this.#users.has(hash)) continue;
      this.#users.set(hash, 1);
      added.push(hash);
    }
    return added;
  }

  /** Unpins the blocks of a sequence that ended. Returns the number of its blocks that no sequence uses any more. */
  release(hashes: readonly number[]): number {
    let idle = 0;
    // Releases the last block first, so that it is evicted before the blocks on which it depends.
    for (const hash of [...hashes].reverse()) {
      const users = this.#users.get(hash);
      if (users === undefined) continue;
      if (users === 1) idle++;
      this.#touch(hash, users - 1);
    }
    this.#idle += idle;
    return idle;
  }

  /** Evicts blocks that no sequence uses, in order of last use, until the cache has at most `room` unused blocks. */
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
