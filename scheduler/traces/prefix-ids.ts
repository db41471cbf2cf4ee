/** Ids that are remembered: 100 bytes each. A trace with more distinct blocks would not fit the machine. */
const IDS_MAX = 20_000_000;

/**
 * Turns hashes of single blocks into chained ids: a block gets the same id as another only where everything before it is equal, too.
 * Engines share no block whose predecessors differ.
 */
export class PrefixIds {
  readonly #known = new Map<string, number>();

  /** One id per block, in order. Stops where no more ids can be remembered: what follows is never shared. */
  chain(blocks: readonly string[]): number[] {
    const ids: number[] = [];
    let before = 0;
    for (const block of blocks) {
      const key = `${before}:${block}`;
      let id = this.#known.get(key);
      if (id === undefined) {
        if (this.#known.size >= IDS_MAX) break;
        id = this.#known.size + 1;
        this.#known.set(key, id);
      }
      ids.push(id);
      before = id;
    }
    return ids;
  }
}
