import { expertsOf, type Model } from '../catalogue/model.ts';
import type { Fluid } from '../serving/fluid.ts';
import type { EngineLimits } from '../serving/limits.ts';
import { LOAD_LEVELS } from '../serving/profile.ts';
import { hull } from './curve.ts';
import type { Curve } from './problem.ts';

/*
 * Bounds on what a simulation can find, from averages. They are not proven: test/scheduler/estimates.test.ts holds the catalogue against
 * them, and each simulation of a plan is compared with the bound it had, see `OptionTable.optimistic`.
 */

/** A replica never does more than so many times the averages' capacity … */
const CAPACITY_OPTIMISM = 1.5;
/** … and once another GPU was simulated with the same requests, hardly more times it than that one: where the engine's limit ends its batch … */
const CAPACITY_SPREAD_FULL = 1.1;
/** … and where memory does. */
const CAPACITY_SPREAD_MEMORY = 1.45;
/** A simulated capacity is at least this share of the averages'. */
const CAPACITY_LEAST = 0.75;
/** No request is faster than so much of the averages' latency without a wait … */
const LATENCY_OPTIMISM = 0.6;
/** … or, where experts are read once for all that need them, and a batch that comes and goes takes less time than its mean, of that. */
const EXPERTS_LATENCY_OPTIMISM = 0.35;
/** No load makes a request faster than it is alone; its lengths are drawn, and those beyond the model's context are refused. */
const ALONE_OPTIMISM = 0.75;
/** Averages know no wait, so near saturation they say nothing about latency. */
const UNQUEUED_LOAD_MAX = 0.7;

/** One replica by averages. */
export class Averages {
  readonly #fluid: Fluid;
  readonly #optimism: number;
  readonly #rate: number;
  /** Memory ends its batch, not the engine's limit. */
  readonly memoryBound: boolean;

  constructor(fluid: Fluid, limits: EngineLimits, model: Model) {
    this.#fluid = fluid;
    this.#rate = fluid.saturated().rate;
    this.#optimism = expertsOf(model).experts > 1 ? EXPERTS_LATENCY_OPTIMISM : LATENCY_OPTIMISM;
    this.memoryBound = fluid.batchMax < limits.maxSequences;
  }

  get leastCapacity(): number {
    return CAPACITY_LEAST * this.#rate;
  }

  #unqueued(rate: number): number {
    return this.#fluid.unqueued(Math.min(rate, UNQUEUED_LOAD_MAX * this.#rate)).latencyS;
  }

  /** Better than any simulation of it. `seen`: the most that a simulation of the same requests was above its averages. */
  estimate(seen?: number): { capacity: number; points: Curve } {
    const spread = this.memoryBound ? CAPACITY_SPREAD_MEMORY : CAPACITY_SPREAD_FULL;
    const most = seen === undefined ? CAPACITY_OPTIMISM : Math.min(CAPACITY_OPTIMISM, seen * spread);
    const capacity = most * this.#rate;
    const alone = ALONE_OPTIMISM * this.#unqueued(0);
    const points = LOAD_LEVELS.map((level) => ({
      rate: level * capacity,
      latencyS: Math.max(alone, this.#optimism * this.#unqueued(level * capacity)),
    }));
    return { capacity, points: hull(points) };
  }

  /** How far a simulation is above its averages, as a factor. */
  above(capacity: number): number {
    return capacity / this.#rate;
  }
}
