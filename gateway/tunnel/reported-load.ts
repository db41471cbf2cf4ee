import type { EngineLoad, NodeLoad } from '../../shared/routing/node-load.ts';
import { isRecent } from '../../shared/timing/is-recent.ts';

const STEP_MS = 10_000;
/** Maximum steps of one hour: about 20 KiB for each busy node. */
const STEPS_MAX = 360;

/** The loads of a node's engine for plots, one per time step. They are lost with the object's memory. */
export class LoadHistory {
  #steps: NodeLoad[] = [];

  /** Adds a load. Each step keeps its last load. */
  add(load: NodeLoad): void {
    const last = this.#steps.at(-1);
    if (last !== undefined && stepOf(last.at) === stepOf(load.at)) this.#steps.pop();
    this.#steps.push(load);
    if (this.#steps.length > STEPS_MAX) this.#steps.shift();
  }

  /** Returns loads, oldest first; none is older than an hour. */
  list(now: number): NodeLoad[] {
    return this.#steps.filter(({ at }) => at > now - STEPS_MAX * STEP_MS);
  }
}

function stepOf(at: number): number {
  return Math.floor(at / STEP_MS);
}

/** Minimum interval between reports of one node's load to the registry. */
const REPORT_MS = 1_000;

/** The load of its engine that the agent last reported. */
export class ReportedLoad {
  readonly #history = new LoadHistory();
  #load: NodeLoad | undefined;
  #reportedAt = Number.NEGATIVE_INFINITY;
  /** Tokens per second, which the agent sends just before the load to which they belong. */
  #rate: number | undefined;

  /** The last load, which is sent to Workers with their responses; undefined: none. */
  get current(): NodeLoad | undefined {
    return this.#load;
  }

  /** Returns loads of the last hour, oldest first. */
  history(now: number): NodeLoad[] {
    return this.#history.list(now);
  }

  rate(tokensPerSecond: number): void {
    this.#rate = tokensPerSecond;
  }

  /**
   * Records a load and returns it if it must be reported to the registry now. Undefined: a load was reported less than
   * REPORT_MS ago.
   */
  update({ running, waiting, kvUse }: EngineLoad, open: number, now: number): NodeLoad | undefined {
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
    if (isRecent(REPORT_MS, this.#reportedAt, now)) return undefined;
    this.#reportedAt = now;
    return this.#load;
  }
}
