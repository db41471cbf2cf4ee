import type { NodeLoad } from '../../shared/routing/load.ts';

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
