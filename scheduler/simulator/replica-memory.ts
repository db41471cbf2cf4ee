import type { KvBlocks } from './kv-blocks.ts';
import { PrefixCache } from './prefix-cache.ts';
import { NONE, type Sequence } from './sequence.ts';

/**
 * The memory of one replica for all its sequences: what they take at admission, and which blocks they leave for later
 * sequences with the same beginning.
 */
export class ReplicaMemory {
  readonly #blocks: KvBlocks;
  readonly #prefixes = new PrefixCache();
  readonly #prefixBlockTokens: number;
  /** Number of memory blocks for each block of a prefix; 0: the model has no keys and values that could be shared. */
  readonly #prefixBlocks: number;

  /** `prefixBlockTokens`: number of tokens for each hash. */
  constructor(blocks: KvBlocks, prefixBlockTokens: number) {
    this.#blocks = blocks;
    this.#prefixBlockTokens = prefixBlockTokens;
    this.#prefixBlocks = blocks.blocksFor(prefixBlockTokens);
  }

  /**
   * True if there is memory for the sequence. Looks up the prefix first: blocks that other sequences already use need
   * no further memory.
   */
  fits(sequence: Sequence): boolean {
    const { hashes } = sequence;
    const all = sequence.prompt + sequence.cached;
    sequence.fixed = this.#blocks.fixedFor(all + sequence.remaining);
    if (hashes.length === 0 || this.#prefixBlocks === 0)
      return this.#blocks.blocksFor(all) + sequence.fixed <= this.#blocks.free;
    this.#prefixes.trim(Math.floor(this.#blocks.free / this.#prefixBlocks));
    // The last token of a prompt is always computed, even if the cache holds its block.
    const most = Math.floor((all - 1) / this.#prefixBlockTokens);
    sequence.shared = Math.min(most, this.#prefixes.match(hashes));
    sequence.cached = sequence.shared * this.#prefixBlockTokens;
    sequence.prompt = all - sequence.cached;
    return this.#private(sequence, all) + this.#shared(sequence) <= this.#blocks.free;
  }

  /** Takes the memory that `fits` determined. */
  admit(sequence: Sequence): void {
    this.#blocks.take(this.#private(sequence, sequence.prompt + sequence.cached));
    this.#blocks.take(this.#prefixes.reserve(sequence.hashes, sequence.shared) * this.#prefixBlocks);
  }

  /** Keeps the blocks of a computed prompt in the cache, for later sequences with the same beginning. */
  keepPrefix(sequence: Sequence): void {
    if (this.#prefixBlocks > 0 && sequence.hashes.length > 0)
      sequence.own = this.#prefixes.add(sequence.hashes, sequence.shared);
  }

  /**
   * Frees the memory of a sequence with `held` tokens. Blocks of its prefix stay in the cache until their memory is
   * needed.
   */
  giveBack(sequence: Sequence, held: number): void {
    const own = sequence.own.length * this.#prefixBlocks;
    this.#blocks.give(this.#private(sequence, held) - own);
    if (sequence.hashes.length === 0) return;
    const used = [...sequence.hashes.slice(0, sequence.shared), ...sequence.own];
    this.#blocks.give(this.#prefixes.release(used) * this.#prefixBlocks);
    sequence.shared = 0;
    sequence.own = NONE;
  }

  #shared(sequence: Sequence): number {
    return sequence.shared * this.#prefixBlocks;
  }

  #private(sequence: Sequence, tokens: number): number {
    return Math.max(0, this.#blocks.blocksFor(tokens) - this.#shared(sequence)) + sequence.fixed;
  }
}
