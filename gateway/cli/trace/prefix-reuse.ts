/** Counts prompt blocks that followed the same blocks in an earlier request of the same model. */

/** Maximum prefixes that are remembered, 50 bytes each. Further ones count as new. */
const PREFIXES_MAX = 5_000_000;

export class PrefixReuse {
  /** Known prefixes. The key of a prefix is the number of the previous prefix, and its last block. */
  readonly #prefixes = new Map<string, number>();
  /** True if the trace was too long to remember all prefixes. */
  truncated = false;

  /** Counts the blocks of a prompt, in its order, and those that an engine could have reused. */
  add(model: string, blocks: readonly string[]): { blocks: number; reused: number } {
    let prefix = `${model}\n`;
    let [counted, reused, shared] = [0, 0, true];
    for (const block of blocks) {
      const key = prefix + block;
      const known = this.#prefixes.get(key);
      shared &&= known !== undefined;
      counted++;
      if (shared) reused++;
      let number = known;
      if (number === undefined) {
        if (this.#prefixes.size >= PREFIXES_MAX) {
          this.truncated = true;
          return { blocks: counted, reused };
        }
        number = this.#prefixes.size;
        this.#prefixes.set(key, number);
      }
      prefix = `${number} `;
    }
    return { blocks: counted, reused };
  }
}
