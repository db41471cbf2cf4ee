import { SchedulerError } from '../errors.ts';
import {
  type Deployment,
  kvBytesPerToken,
  kvCapacityTokens,
  RUNTIME_BYTES,
  tpProblem,
  weightBytes,
} from '../roofline/deployment.ts';
import { StepModel } from '../roofline/step.ts';
import { Fluid, type Moments } from '../serving/fluid.ts';
import { meanLength, moments } from '../serving/lengths.ts';
import { LOAD_LEVELS, profile } from '../serving/profile.ts';
import type { Demand, Option, PlanOptions, Pool } from './problem.ts';

/** Tensor parallelisms that engines are run with. */
const PARALLELISMS = [1, 2, 4, 8];

/** A replica must hold so many sequences of mean length (paper, C2): with one, every request would wait for the one before. */
const SEQUENCES_MIN = 2;
/** Under overload, where there is a choice: a replica with fewer places ends its share of a backlog early or late by chance. */
const SEQUENCES_OVERLOAD = 8;

/** All options, estimated; `simulateOption` makes one exact. Throws `infeasible` where a model fits nowhere. */
export class OptionTable {
  readonly options: Option[] = [];
  readonly #demands: readonly Demand[];
  readonly #pools: readonly Pool[];
  readonly #settings: PlanOptions;
  readonly #steps = new Map<Option, StepModel>();
  simulated = 0;

  constructor(demands: readonly Demand[], pools: readonly Pool[], settings: PlanOptions) {
    this.#demands = demands;
    this.#pools = pools;
    this.#settings = settings;
    demands.forEach((demand, m) => {
      const lengths = { input: moments(demand.input), output: moments(demand.output) };
      const wanted = settings.objective === 'throughput' ? [SEQUENCES_OVERLOAD, SEQUENCES_MIN] : [SEQUENCES_MIN];
      const found = wanted.some((sequences) => this.#add(m, sequences, lengths));
      if (!found) throw new SchedulerError('infeasible', whyNowhere(demand, pools, settings));
    });
    this.#measure();
  }

  /** The options of one model that hold so many sequences. False where there are none. */
  #add(m: number, sequences: number, lengths: Moments): boolean {
    const [demand, settings, before] = [this.#demands[m], this.#settings, this.options.length];
    if (demand === undefined) return false;
    this.#pools.forEach((pool, p) => {
      for (const tp of parallelisms(demand, pool)) {
        const deployment = { model: demand.model, gpu: pool.gpu, tp, weights: demand.weights, kv: demand.kv };
        if (!fits(deployment, demand, sequences, settings)) continue;
        const step = new StepModel(deployment, settings.calibration, settings.limits);
        const option = estimate(step, m, p, tp, demand, lengths, settings);
        this.options.push(option);
        this.#steps.set(option, step);
      }
    });
    return this.options.length > before;
  }

  step(option: Option): StepModel {
    const step = this.#steps.get(option);
    if (step === undefined) throw new Error('an option of another table');
    return step;
  }

  /** Replaces its estimate by simulation. False where there was nothing to do. */
  simulateOption(option: Option, wantLatency: boolean): boolean {
    if (option.source === 'simulated' || (option.source === 'measured' && option.points.length > 1)) return false;
    const demand = this.#demands[option.demand];
    if (demand === undefined) return false;
    const of = {
      step: this.step(option),
      limits: this.#settings.limits,
      input: demand.input,
      output: demand.output,
      cv: demand.cv,
    };
    const { capacity, points } = profile(of, wantLatency ? LOAD_LEVELS : []);
    this.simulated++;
    if (option.source === 'measured') {
      // Measured capacity, simulated shape.
      const scale = capacity === 0 ? 0 : option.capacity / capacity;
      option.points = hull(
        points.map(({ rate, latencyS }) => ({ rate: rate * scale, latencyS: latencyS / Math.max(scale, 1e-9) })),
      );
      return true;
    }
    option.capacity = capacity;
    option.points = hull(points);
    option.source = 'simulated';
    return true;
  }

  #measure(): void {
    for (const row of this.#settings.measured) {
      for (const option of this.options) {
        const [demand, pool] = [this.#demands[option.demand], this.#pools[option.pool]];
        if (demand?.model.id !== row.model || pool?.gpu.id !== row.gpu || option.tp !== row.tp) continue;
        const scale = row.rate / Math.max(option.capacity, 1e-9);
        option.points = hull(
          option.points.map(({ rate, latencyS }) => ({ rate: rate * scale, latencyS: latencyS / scale })),
        );
        option.capacity = row.rate;
        option.source = 'measured';
      }
    }
  }
}

function parallelisms(demand: Demand, pool: Pool): number[] {
  return (demand.tp ?? PARALLELISMS).filter(
    (tp) =>
      tp <= pool.gpusPerNode &&
      tpProblem(demand.model, tp) === undefined &&
      (pool.allows?.(demand.model.id, tp) ?? true),
  );
}

function fits(deployment: Deployment, demand: Demand, sequences: number, settings: PlanOptions): boolean {
  const tokens = meanLength(demand.input) + meanLength(demand.output);
  return kvCapacityTokens(deployment, settings.limits.memoryFraction) >= sequences * tokens;
}

function estimate(
  step: StepModel,
  demand: number,
  pool: number,
  tp: number,
  { cv }: Demand,
  lengths: Moments,
  settings: PlanOptions,
): Option {
  const fluid = new Fluid(step, settings.limits, lengths);
  const capacity = fluid.saturated().rate;
  const points = LOAD_LEVELS.map((level) => ({
    rate: level * capacity,
    latencyS: fluid.at(level * capacity, cv).latencyS,
  }));
  return { demand, pool, tp, capacity, points: hull(points), source: 'estimated' };
}

/**
 * The lower convex hull of rate -> rate * latency through the origin: noise of a simulation would else make a point that no mixture of
 * its neighbours should beat, and the linear program inexact.
 */
function hull(points: readonly { rate: number; latencyS: number }[]): Option['points'] {
  const kept: { rate: number; cost: number }[] = [{ rate: 0, cost: 0 }];
  for (const { rate, latencyS } of points) {
    if (!(rate > 0) || !Number.isFinite(latencyS)) continue;
    const next = { rate, cost: rate * latencyS };
    for (;;) {
      const [b, a] = [kept.at(-1), kept.at(-2)];
      if (a === undefined || b === undefined) break;
      if ((b.cost - a.cost) * (next.rate - a.rate) <= (next.cost - a.cost) * (b.rate - a.rate)) break;
      kept.pop();
    }
    kept.push(next);
  }
  return kept.map(({ rate, cost }) => ({ rate, latencyS: rate === 0 ? 0 : cost / rate }));
}

const gb = (bytes: number) => (bytes / 1e9).toFixed(1);

function whyNowhere(demand: Demand, pools: readonly Pool[], settings: PlanOptions): string {
  const { model } = demand;
  const asked = demand.tp;
  const problems = asked?.map((tp) => tpProblem(model, tp)).filter((problem) => problem !== undefined) ?? [];
  if (asked && problems.length === asked.length) return problems.join('; ');
  const tokens = SEQUENCES_MIN * (meanLength(demand.input) + meanLength(demand.output));
  const offers = pools.flatMap((pool) =>
    parallelisms(demand, pool).map((tp) => {
      const deployment = { model, gpu: pool.gpu, tp, weights: demand.weights, kv: demand.kv };
      const need = weightBytes(deployment) + tokens * kvBytesPerToken(deployment) + tp * RUNTIME_BYTES;
      return { pool, tp, need, have: tp * pool.gpu.memory * settings.limits.memoryFraction };
    }),
  );
  const best = offers.sort((a, b) => a.need - a.have - (b.need - b.have))[0];
  if (best === undefined) return `${model.id}: no pool has a node that any of its parallelisms fits on`;
  const smaller = (['fp8', 'int4'] as const).find((weights) => {
    const deployment = { model, gpu: best.pool.gpu, tp: best.tp, weights, kv: demand.kv };
    return kvCapacityTokens(deployment, settings.limits.memoryFraction) >= tokens;
  });
  const relax = smaller
    ? `smallest relaxation: weights in ${smaller} (it would then fit ${best.tp} × ${best.pool.gpu.id})`
    : `smallest relaxation: a node with ${gb(best.need / settings.limits.memoryFraction)} GB of GPU memory for one replica`;
  return (
    `${model.id} fits nowhere: memory (C2) binds. Weights and ${SEQUENCES_MIN} sequences of mean length need ${gb(best.need)} GB; ` +
    `the best node offers ${gb(best.have)} GB (${best.tp} × ${best.pool.gpu.id}, ${settings.limits.memoryFraction} of memory); ${relax}`
  );
}
