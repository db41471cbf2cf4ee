import type { EngineLoad, NodeLoad } from '../../shared/routing/load.ts';

/** The registry hears of one node's load this often at most. */
const TELL_EVERY_MS = 1_000;

/** What the agent at the other end last said of its engine. */
export class NodeLoadWatch {
  #load: NodeLoad | undefined;
  #toldAt = Number.NEGATIVE_INFINITY;

  /** For Workers, with the answer they wait for. */
  get current(): NodeLoad | undefined {
    return this.#load;
  }

  /** What the registry is to be told now; undefined: nothing, it heard a moment ago. */
  heard({ running, waiting, kvUse }: EngineLoad, open: number, now: number): NodeLoad | undefined {
    this.#load = { running, waiting, ...(kvUse === undefined ? {} : { kvUse }), at: now, open };
    if (now - this.#toldAt < TELL_EVERY_MS) return undefined;
    this.#toldAt = now;
    return this.#load;
  }
}
