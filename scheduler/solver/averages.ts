import { expertsOf, type Model } from '../catalogue/model.ts';
import type { FluidLike, Moments } from '../serving/fluid.ts';
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
/** … and where memory does. Either engine of a pair may end its throughput, so that one pair says little of another. */
const CAPACITY_SPREAD_MEMORY = 1.45;
/** A simulated capacity is at least this share of the averages'. */
const CAPACITY_LEAST = 0.75;
/** No request is faster than so much of the averages' latency without a wait … */
const LATENCY_OPTIMISM = 0.8;
/** … or, where experts are read once for all that need them, and a batch that comes and goes takes less time than its mean, of that. */
const EXPERTS_LATENCY_OPTIMISM = 0.45;
/** No load makes a request faster than it is alone; its lengths are drawn. */
const ALONE_OPTIMISM = 0.9;
/** Where long requests are refused because the context ends, those that are left are shorter: of all these. */
const REFUSED_OPTIMISM = 0.75;
/** Requests as long as their mean and so many deviations are rare. */
const RARE_DEVIATIONS = 4;
/** Averages know no wait, so near saturation they say nothing about latency. */
const UNQUEUED_LOAD_MAX = 0.7;

/** One replica by averages. */
export class Averages {
  readonly #fluid: FluidLike;
  readonly #optimism: number;
  readonly #rate: number;
  readonly #refusals: number;
  /** What ends its throughput. What one simulation shows of the averages' error holds for others with the same limit. */
  readonly limit: 'sequences' | 'memory' | 'pair';

  constructor(fluid: FluidLike, model: Model, { input, output }: Moments) {
    const deviation = Math.sqrt(Math.max(0, input.square - input.mean ** 2 + output.square - output.mean ** 2));
    const long = input.mean + output.mean + RARE_DEVIATIONS * deviation;
    this.#refusals = model.context > 0 && long > model.context ? REFUSED_OPTIMISM : 1;
    this.#fluid = fluid;
    this.#rate = fluid.saturated().rate;
    this.#optimism = expertsOf(model).experts > 1 ? EXPERTS_LATENCY_OPTIMISM : LATENCY_OPTIMISM;
    const single = fluid.batchMax < fluid.maxSequences ? 'memory' : 'sequences';
    this.limit = fluid.isPair ? 'pair' : single;
  }

  get leastCapacity(): number {
    return CAPACITY_LEAST * this.#rate;
  }

  #unqueued(rate: number): number {
    return this.#fluid.unqueued(Math.min(rate, UNQUEUED_LOAD_MAX * this.#rate)).latencyS;
  }

  /** Better than any simulation of it. `seen`: the most that a simulation of the same requests was above its averages. */
  estimate(seen?: number): { capacity: number; points: Curve } {
    const spread = this.limit === 'sequences' ? CAPACITY_SPREAD_FULL : CAPACITY_SPREAD_MEMORY;
    const most =
      seen === undefined || this.limit === 'pair' ? CAPACITY_OPTIMISM : Math.min(CAPACITY_OPTIMISM, seen * spread);
    const capacity = most * this.#rate;
    const alone = this.#refusals * ALONE_OPTIMISM * this.#unqueued(0);
    const points = LOAD_LEVELS.map((level) => ({
      rate: level * capacity,
      latencyS: Math.max(alone, this.#refusals * this.#optimism * this.#unqueued(level * capacity)),
    }));
    return { capacity, points: hull(points) };
  }

  /** How far a simulation is above its averages, as a factor. */
  above(capacity: number): number {
    return capacity / this.#rate;
  }
}
