import type { CacheLayout } from '../roofline/model-deployment.ts';

/** The blocks of keys and values of one replica. */
export class KvBlocks {
  readonly total: number;
  readonly blockTokens: number;
  free: number;
  readonly #layout: CacheLayout;
  readonly #blockBytes: number;

  /** `freeBytes`: memory for sequences with this layout. */
  constructor(freeBytes: number, blockTokens: number, layout: CacheLayout) {
    this.blockTokens = blockTokens;
    this.#layout = layout;
    // A model without layers of full attention takes blocks only when a sequence is admitted.
    this.#blockBytes =
      layout.perToken > 0 ? layout.perToken * blockTokens : layout.perWindowToken * blockTokens + layout.perSequence;
    this.total = Math.max(0, Math.floor(freeBytes / Math.max(this.#blockBytes, 1e-9)));
    this.free = this.total;
  }

  /**
   * Blocks that a sequence takes once, at admission, for its windows and states. `longest`: its final length, tokens.
   * An engine frees tokens that left the window, so a sequence holds at most one window of them.
   */
  fixedFor(longest: number): number {
    const { perWindowToken, perSequence, window } = this.#layout;
    return Math.ceil((perWindowToken * Math.min(longest, window) + perSequence) / Math.max(this.#blockBytes, 1e-9));
  }

  /** True if a decoding sequence takes more blocks. */
  get growing(): boolean {
    return this.#layout.perToken > 0;
  }

  /** Share of the blocks that are in use. */
  get used(): number {
    return this.total === 0 ? 0 : 1 - this.free / this.total;
  }

  blocksFor(tokens: number): number {
    return this.growing ? Math.ceil(tokens / this.blockTokens) : 0;
  }

  take(blocks: number): void {
    this.free -= blocks;
  }

  give(blocks: number): void {
    this.free += blocks;
  }
}

/**
 * The blocks that the sequences of one batch take while they decode. A sequence gains one token per step and a block
 * every `blockTokens` steps. So its phase, (tokens - step) modulo blockTokens, is constant. The number of sequences of
 * each phase determines how many blocks any number of steps needs.
 */
export class BlockPhases {
  readonly #blocks: KvBlocks;
  #decodes = 0;
  readonly #phases: Int32Array;

  constructor(blocks: KvBlocks) {
    this.#blocks = blocks;
    this.#phases = new Int32Array(blocks.blockTokens);
  }

  /** Adds a sequence with `tokens` tokens that begins to decode at `step`. Returns its phase. */
  join(tokens: number, step: number): number {
    if (!this.#blocks.growing) return 0;
    const phase = (((tokens - step) % this.#blocks.blockTokens) + this.#blocks.blockTokens) % this.#blocks.blockTokens;
    this.#phases[phase] = (this.#phases[phase] ?? 0) + 1;
    this.#decodes++;
    return phase;
  }

  leave(phase: number): void {
    if (!this.#blocks.growing) return;
    this.#phases[phase] = (this.#phases[phase] ?? 0) - 1;
    this.#decodes--;
  }

  /** Number of blocks that `steps` decode steps take, beginning with step `step`. */
  needed(steps: number, step: number): number {
    const cycles = Math.floor(steps / this.#blocks.blockTokens);
    let needed = cycles * this.#decodes;
    for (let j = cycles * this.#blocks.blockTokens; j < steps; j++) needed += this.#beginning(step + j);
    return needed;
  }

  /** Number of steps, beginning with `step`, until the blocks are used up; at most `wanted`. */
  stepsInRoom(wanted: number, step: number): number {
    if (this.#decodes === 0) return wanted;
    const cycles = Math.floor(this.#blocks.free / this.#decodes);
    if (cycles * this.#blocks.blockTokens >= wanted) return wanted;
    let steps = cycles * this.#blocks.blockTokens;
    let needed = cycles * this.#decodes;
    while (steps < wanted) {
      needed += this.#beginning(step + steps);
      if (needed > this.#blocks.free) break;
      steps++;
    }
    return steps;
  }

  /** Number of sequences that begin a new block at `step`. */
  #beginning(step: number): number {
    return this.#phases[(this.#blocks.blockTokens - (step % this.#blocks.blockTokens)) % this.#blocks.blockTokens] ?? 0;
  }
}
