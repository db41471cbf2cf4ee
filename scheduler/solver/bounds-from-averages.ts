import { expertsOf, type Model } from '../catalogue/model.ts';
import type { FluidLike, Moments } from '../serving/fluid-replica.ts';
import { LOAD_LEVELS } from '../serving/replica-profile.ts';
import { hull } from './latency-curve.ts';
import type { Curve } from './planning-problem.ts';

/*
 * Bounds on the results of simulations, from averages. They are not proven: test/scheduler/estimates.test.ts compares
 * the catalogue with them, and each simulation of a plan is compared with its bound, see `OptionTable.optimistic`.
 */

/** A replica's capacity is at most this multiple of the averages' … */
const CAPACITY_OPTIMISM = 1.5;
/**
 * … and once another GPU was simulated with the same requests, its factor is at most this multiple of that GPU's if the
 * engine's limit bounds the batch …
 */
const CAPACITY_SPREAD_FULL = 1.1;
/**
 * … and this multiple if memory does. Either engine of a pair may bound its throughput, so that a pair reveals little
 * about another.
 */
const CAPACITY_SPREAD_MEMORY = 1.45;
/** A simulated capacity is at least this share of the averages'. */
const CAPACITY_MIN = 0.75;
/** The latency of a request is at least this share of the averages' latency without queueing … */
const LATENCY_OPTIMISM = 0.8;
/**
 * … or this share with experts: they are read once for all tokens that need them, and a varying batch takes less time
 * than its mean.
 */
const EXPERTS_LATENCY_OPTIMISM = 0.45;
/** Under load, the latency of a request is at least this share of its latency without load; lengths are random. */
const ALONE_OPTIMISM = 0.9;
/** Additional factor if long requests are refused because the context ends: the others are shorter. */
const REFUSED_OPTIMISM = 0.75;
/** Requests that exceed their mean by this many deviations are rare. */
const RARE_DEVIATIONS = 4;
/** Averages include no queueing, so above this load they do not predict latency. */
const UNQUEUED_LOAD_MAX = 0.7;

/** One replica, by averages. */
export class Averages {
  readonly #fluid: FluidLike;
  readonly #optimism: number;
  readonly #rate: number;
  readonly #refusals: number;
  /**
   * The limit of its throughput. The averages' error in one simulation applies to other replicas with the same limit.
   */
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
    return CAPACITY_MIN * this.#rate;
  }

  #unqueued(rate: number): number {
    return this.#fluid.unqueued(Math.min(rate, UNQUEUED_LOAD_MAX * this.#rate)).latencyS;
  }

  /**
   * An estimate that is better than any simulation. `seen`: the highest factor by which a simulation of the same
   * requests exceeded its averages.
   */
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

  /** The factor by which a simulation exceeds its averages. */
  above(capacity: number): number {
    return capacity / this.#rate;
  }
}
