import { isRecent } from '../../shared/collections/is-recent.ts';
import type { EngineLoad, NodeLoad } from '../../shared/routing/load.ts';

const STEP_MS = 10_000;
/** An hour of steps: about 20 KiB for each node that works. */
const STEPS_MAX = 360;

/** The loads of a node's engine, one for each step of time, for plots. Lost with the object's memory; records of use are kept elsewhere. */
export class LoadHistory {
  #steps: NodeLoad[] = [];

  /** The last of each step is kept. */
  add(load: NodeLoad): void {
    const last = this.#steps.at(-1);
    if (last !== undefined && stepOf(last.at) === stepOf(load.at)) this.#steps.pop();
    this.#steps.push(load);
    if (this.#steps.length > STEPS_MAX) this.#steps.shift();
  }

  /** The oldest first; none is older than an hour. */
  list(now: number): NodeLoad[] {
    return this.#steps.filter(({ at }) => at > now - STEPS_MAX * STEP_MS);
  }
}

function stepOf(at: number): number {
  return Math.floor(at / STEP_MS);
}

/** The registry hears of one node's load this often at most. */
const TELL_EVERY_MS = 1_000;

/** The load that the agent at the other end last reported of its engine. */
export class ReportedLoad {
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
    if (isRecent(TELL_EVERY_MS, this.#toldAt, now)) return undefined;
    this.#toldAt = now;
    return this.#load;
  }
}
