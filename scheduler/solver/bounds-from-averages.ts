import { expertsOf, type Model } from '../catalogue/model.ts';
import type { FluidLike, Moments } from '../simulator/fluid-replica.ts';
import { LOAD_LEVELS } from '../simulator/replica-profile.ts';
import { hull } from './latency-curve.ts';
import type { Curve } from './planning-problem.ts';

/*
 * Bounds on the results of simulations, computed from averages. They are not proven. test/scheduler/estimates.test.ts
 * checks them for the catalogue, and each simulation of a plan is compared with its bound; see
 * `OptionTable.optimistic`.
 */

/** A replica's simulated capacity is at most this multiple of its capacity by averages. */
const CAPACITY_OPTIMISM = 1.5;
/**
 * If the same requests were simulated on another GPU, a tighter bound applies: the ratio of simulated capacity to
 * averages is at most this multiple of that GPU's ratio. This applies if the engine's limit of sequences bounds the
 * batch on both GPUs.
 */
const CAPACITY_SPREAD_FULL = 1.1;
/**
 * As `CAPACITY_SPREAD_FULL`, if memory bounds both batches. Pairs have no tighter bound, because either engine may
 * limit a pair, so that the ratio of one pair reveals little about other pairs.
 */
const CAPACITY_SPREAD_MEMORY = 1.45;
/** A simulated capacity is at least this share of the capacity by averages. */
const CAPACITY_MIN = 0.75;
/** A simulated latency is at least this share of the latency by averages, which includes no queueing. */
const LATENCY_OPTIMISM = 0.8;
/**
 * As `LATENCY_OPTIMISM`, for a model with experts. The factor is lower, because an expert is read once for all tokens
 * that need it: on average, batches of varying size take less time than a batch of the mean size.
 */
const EXPERTS_LATENCY_OPTIMISM = 0.45;
/**
 * Under load, a request's latency is at least this share of its latency without load. The share is below 1, because the
 * lengths of the simulated requests are random.
 */
const ALONE_OPTIMISM = 0.9;
/** Factor on latencies if the engine refuses long requests because the context ends: the remaining ones are shorter. */
const REFUSED_OPTIMISM = 0.75;
/** Requests that exceed the mean length by more than this many standard deviations are rare. */
const RARE_DEVIATIONS = 4;
/** Averages include no queueing, so above this load they do not predict latency. */
const UNQUEUED_LOAD_MAX = 0.7;

/** The averages of one replica, and the bounds that follow from them. */
export class Averages {
  readonly #fluid: FluidLike;
  readonly #optimism: number;
  readonly #rate: number;
  readonly #refusals: number;
  /**
   * What limits the replica's throughput. The error of the averages in one simulation applies to other replicas with
   * the same limit.
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
   * Returns an estimate that no simulation is expected to exceed. `seen`: the highest ratio of a simulated capacity to
   * averages, over simulations of the same requests.
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

  /** Ratio of a simulated capacity to the capacity by averages. */
  above(capacity: number): number {
    return capacity / this.#rate;
  }
}
