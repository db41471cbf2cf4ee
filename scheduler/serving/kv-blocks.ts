/**
 * The blocks of keys and values of one replica. A decoding sequence gains one token per step and a block every `blockTokens` steps, so its
 * phase, (tokens - step) modulo blockTokens, stays what it is: counts by phase say how many blocks any number of steps will need.
 */
export class KvBlocks {
  readonly total: number;
  readonly blockTokens: number;
  free: number;
  #decodes = 0;
  readonly #phases: Int32Array;

  constructor(capacityTokens: number, blockTokens: number) {
    this.blockTokens = blockTokens;
    this.total = Math.max(0, Math.floor(capacityTokens / blockTokens));
    this.free = this.total;
    this.#phases = new Int32Array(blockTokens);
  }

  /** Share in use. */
  get used(): number {
    return this.total === 0 ? 0 : 1 - this.free / this.total;
  }

  blocksFor(tokens: number): number {
    return Math.ceil(tokens / this.blockTokens);
  }

  take(tokens: number): void {
    this.free -= this.blocksFor(tokens);
  }

  give(tokens: number): void {
    this.free += this.blocksFor(tokens);
  }

  /** A sequence with so many tokens begins to decode at `step`. Returns its phase. */
  join(tokens: number, step: number): number {
    const phase = (((tokens - step) % this.blockTokens) + this.blockTokens) % this.blockTokens;
    this.#phases[phase] = (this.#phases[phase] ?? 0) + 1;
    this.#decodes++;
    return phase;
  }

  leave(phase: number): void {
    this.#phases[phase] = (this.#phases[phase] ?? 0) - 1;
    this.#decodes--;
  }

  /** Blocks that `steps` decode steps from `step` on take. */
  needed(steps: number, step: number): number {
    const cycles = Math.floor(steps / this.blockTokens);
    let needed = cycles * this.#decodes;
    for (let j = cycles * this.blockTokens; j < steps; j++) needed += this.#beginning(step + j);
    return needed;
  }

  /** Steps from `step` on until the blocks run out, at most `wanted`. */
  stepsInRoom(wanted: number, step: number): number {
    const cycles = Math.floor(this.free / this.#decodes);
    if (cycles * this.blockTokens >= wanted) return wanted;
    let steps = cycles * this.blockTokens;
    let needed = cycles * this.#decodes;
    while (steps < wanted) {
      needed += this.#beginning(step + steps);
      if (needed > this.free) break;
      steps++;
    }
    return steps;
  }

  /** Sequences that begin a new block at `step`. */
  #beginning(step: number): number {
    return this.#phases[(this.blockTokens - (step % this.blockTokens)) % this.blockTokens] ?? 0;
  }
}
