import { within } from '../../shared/collections/within.ts';
import type { EngineLoad, NodeLoad } from '../../shared/routing/load.ts';
import { LoadHistory } from './load-history.ts';

/** The registry hears of one node's load this often at most. */
const TELL_EVERY_MS = 1_000;

/** The load that the agent at the other end last reported of its engine. */
export class NodeLoadWatch {
  readonly #history = new LoadHistory();
  #load: NodeLoad | undefined;
  #toldAt = Number.NEGATIVE_INFINITY;
  /** The agent sends it just before the load that it belongs to. */
  #rate: number | undefined;

  /** Goes to Workers with their answers. */
  get current(): NodeLoad | undefined {
    return this.#load;
  }

  /** Of the last hour, the oldest first. */
  history(now: number): NodeLoad[] {
    return this.#history.list(now);
  }

  rate(tokensPerSecond: number): void {
    this.#rate = tokensPerSecond;
  }

  /** The load to tell the registry now. Undefined: the registry was told one a moment ago. */
  heard({ running, waiting, kvUse }: EngineLoad, open: number, now: number): NodeLoad | undefined {
    const tokensPerSecond = this.#rate;
    this.#rate = undefined;
    this.#load = {
      running,
      waiting,
      ...(kvUse === undefined ? {} : { kvUse }),
      ...(tokensPerSecond === undefined ? {} : { tokensPerSecond }),
      at: now,
      open,
    };
    this.#history.add(this.#load);
    if (within(TELL_EVERY_MS, this.#toldAt, now)) return undefined;
    this.#toldAt = now;
    return this.#load;
  }
}
