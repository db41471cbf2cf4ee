import { SchedulerError } from '../errors.ts';
import { deploymentProblem, kvCapacityTokens, type ModelDeployment } from '../roofline/model-deployment.ts';
import {
  enginesOf,
  gpusOf,
  type Parallelism,
  pairsOf,
  parallelismsOf,
  parallelismText,
  spreadOf,
  tpProblem,
} from '../roofline/parallelism.ts';
import { StepModel } from '../roofline/step-model.ts';
import { Fluid, type FluidLike, type Moments } from '../simulator/fluid-replica.ts';
import { meanLength, moments } from '../simulator/length-distribution.ts';
import type { PrefillSide } from '../simulator/prefill-decode-pair.ts';
import { Averages } from './bounds-from-averages.ts';
import { explainNoPlacement } from './explain-no-placement.ts';
import { FluidPair } from './fluid-pair.ts';
import { hull, latencyAt } from './latency-curve.ts';
import { PARALLELISMS, parallelisms, SEQUENCES_MIN } from './parallelisms.ts';
import type { Curve, Demand, Option, ParallelismKind, PlanOptions, Pool } from './planning-problem.ts';
import { replicaProfile } from './profile-cache.ts';

/**
 * Minimum number of sequences of a replica under overload, if such options exist. A replica that holds fewer sequences
 * ends its share of a backlog early or late by chance.
 */
const SEQUENCES_OVERLOAD = 8;

interface Known {
  /** Step model of the replica or, if the replica is a pair, of its decode engine. */
  step: StepModel;
  prefill: PrefillSide | undefined;
  averages: Averages;
  exact: { capacity: boolean; curve: boolean };
}

/**
 * All options. Estimates are better than simulations by construction, so a plan that is optimal by the table and uses
 * only simulated options is optimal.
 *
 * @throws SchedulerError `infeasible` if a model fits nowhere
 */
export class OptionTable {
  readonly options: Option[] = [];
  readonly #demands: readonly Demand[];
  readonly #pools: readonly Pool[];
  readonly #settings: PlanOptions;
  readonly #known = new Map<Option, Known>();
  readonly #measured = new Set<Option>();
  /**
   * The highest ratio of a simulated capacity to the capacity by averages, by model and by the limit of the throughput
   * (see `Averages.limit`).
   */
  readonly #seen = new Map<string, number>();
  readonly #estimated = new Map<number, Option[]>();
  /** Number of options that were simulated. */
  simulated = 0;
  /**
   * False after a simulation that was better than its estimate: bounds that depend on estimates are then not proven.
   */
  optimistic = true;

  constructor(demands: readonly Demand[], pools: readonly Pool[], settings: PlanOptions) {
    this.#demands = demands;
    this.#pools = pools;
    this.#settings = settings;
    demands.forEach((demand, m) => {
      const lengths = { input: moments(demand.input), output: moments(demand.output) };
      const wanted = settings.objective === 'throughput' ? [SEQUENCES_OVERLOAD, SEQUENCES_MIN] : [SEQUENCES_MIN];
      const found = wanted.some((sequences) => this.#add(m, sequences, lengths));
      if (!found) throw new SchedulerError('infeasible', explainNoPlacement(demand, pools, settings));
    });
    // Targets are computed from these copies, and must not change while options are simulated.
    this.options.forEach((option) => {
      this.#estimated.set(option.demand, [...(this.#estimated.get(option.demand) ?? []), { ...option }]);
    });
    this.#measure();
  }

  /** Adds those options of one model that hold at least `sequences` sequences. Returns false if there are none. */
  #add(m: number, sequences: number, lengths: Moments): boolean {
    const [demand, settings, before] = [this.#demands[m], this.#settings, this.options.length];
    if (demand === undefined) return false;
    if (demand.model.opaque === true) return this.#addMeasured(m, demand);
    this.#pools.forEach((pool, p) => {
      for (const spread of parallelismsTried(demand, pool)) {
        const deployment = { model: demand.model, gpu: pool.gpu, ...spread, weights: demand.weights, kv: demand.kv };
        if (!fits(deployment, demand, sequences, settings)) continue;
        const engines = stepsOf(deployment, settings);
        const averages = new Averages(fluidOf(engines, settings, lengths), demand.model, lengths);
        const option: Option = {
          demand: m,
          pool: p,
          tp: spread.tp,
          ...(isPlain(spread) ? {} : { spread }),
          gpus: gpusOf(spread),
          ...averages.estimate(),
          source: 'estimated',
        };
        this.options.push(option);
        this.#known.set(option, { ...engines, averages, exact: { capacity: false, curve: false } });
      }
    });
    return this.options.length > before;
  }

  /**
   * Adds options of a model of unknown shape. They exist only on hardware with a measurement. Their latency is unknown,
   * so it does not count.
   */
  #addMeasured(m: number, demand: Demand): boolean {
    const before = this.options.length;
    const { id } = demand.model;
    const observed = (demand.observed ?? []).map((row) => ({ ...row, observed: true as const }));
    const rows = [...observed, ...this.#settings.measured.filter(({ model }) => model === id)];
    this.#pools.forEach((pool, p) => {
      const here = rows.filter(
        ({ gpu, tp }) => gpu === pool.gpu.id && tp <= pool.gpusPerNode && (pool.allows?.(id, { tp }) ?? true),
      );
      // Measurements of the operator come last in `here`, so they replace others with the same `tp`.
      for (const { tp, rate, ...how } of new Map(here.map((row) => [row.tp, row])).values()) {
        const points = [0, rate].map((load) => ({ rate: load, latencyS: 0 }));
        const seen = 'observed' in how ? { observed: true as const } : {};
        this.options.push({ demand: m, pool: p, tp, gpus: tp, capacity: rate, points, source: 'measured', ...seen });
      }
    });
    return this.options.length > before;
  }

  /** The options of one model before any was simulated. */
  estimatesOf(demand: number): readonly Option[] {
    return this.#estimated.get(demand) ?? [];
  }

  /** Step model of an option; of the decode engine if it is a pair; undefined if the model's shape is unknown. */
  step(option: Option): StepModel | undefined {
    return this.#known.get(option)?.step;
  }

  /** True if the option was simulated or measured, so that a simulation would not change it. */
  isExact(option: Option, wantLatency: boolean): boolean {
    const exact = this.#known.get(option)?.exact;
    return exact === undefined || (exact.capacity && (exact.curve || !wantLatency));
  }

  /** Replaces the option's estimate by a simulation. Returns false if there was nothing to do. */
  simulateOption(option: Option, wantLatency: boolean): boolean {
    const known = this.#known.get(option);
    const demand = this.#demands[option.demand];
    if (demand === undefined || known === undefined || this.isExact(option, wantLatency)) return false;
    const { limits, calibration } = this.#settings;
    const { capacity, points } = replicaProfile(known.step, demand, limits, calibration, wantLatency, known.prefill);
    if (!known.exact.capacity) this.simulated++;
    known.exact.capacity = true;
    if (wantLatency) known.exact.curve = true;
    const before = { capacity: option.capacity, points: option.points };
    const wasEstimated = option.source === 'estimated';
    // The capacity is measured; the latency curve is simulated and scaled to it.
    const scale = this.#measured.has(option) && capacity > 0 ? option.capacity / capacity : 1;
    if (!this.#measured.has(option)) {
      option.capacity = capacity;
      option.source = 'simulated';
    }
    if (wantLatency) option.points = scaled(points, scale, 1 / scale);
    if (wasEstimated && !isWithin(before, option, wantLatency)) this.optimistic = false;
    this.#learn(option.demand, known.averages, capacity);
    return true;
  }

  /**
   * Remembers by how much a simulation exceeded its averages. The same ratio, with a margin, bounds the same requests
   * on other GPUs.
   */
  #learn(demand: number, simulated: Averages, capacity: number): void {
    const { limit } = simulated;
    const key = `${demand} ${limit}`;
    const seen = Math.max(this.#seen.get(key) ?? 0, simulated.above(capacity));
    this.#seen.set(key, seen);
    for (const option of this.options) {
      if (option.demand !== demand || option.source !== 'estimated') continue;
      const averages = this.#known.get(option)?.averages;
      if (averages?.limit === limit) Object.assign(option, averages.estimate(seen));
    }
  }

  #measure(): void {
    for (const row of this.#settings.measured) {
      let matched = false;
      for (const option of this.options) {
        const [demand, pool] = [this.#demands[option.demand], this.#pools[option.pool]];
        if (demand?.model.id !== row.model || pool?.gpu.id !== row.gpu || option.tp !== row.tp || option.spread)
          continue;
        matched = true;
        const known = this.#known.get(option);
        if (known === undefined) continue;
        option.points = scaled(
          option.points,
          row.rate / Math.max(option.capacity, 1e-12),
          known.averages.leastCapacity / row.rate,
        );
        option.capacity = row.rate;
        option.source = 'measured';
        known.exact.capacity = true;
        this.#measured.add(option);
      }
      if (!matched)
        this.#settings.progress?.(
          `measured row ${row.model} on ${row.tp} × ${row.gpu} matches no possible replica: ignored`,
        );
    }
  }
}

const scaled = (points: Curve, rate: number, latency: number): Curve =>
  hull(points.map((point) => ({ rate: point.rate * rate, latencyS: point.latencyS * latency })));

/** True if the simulated option is not better than the estimate. `latencies`: compare latencies too. */
function isWithin(estimate: Pick<Option, 'capacity' | 'points'>, found: Option, latencies: boolean): boolean {
  if (found.capacity > estimate.capacity * 1.0001) return false;
  return (
    !latencies || found.points.every(({ rate, latencyS }) => latencyS >= latencyAt(estimate.points, rate) * 0.9999)
  );
}

/** Returns the step models of a replica's engines. */
export function stepsOf(
  deployment: ModelDeployment,
  { calibration, limits }: Pick<PlanOptions, 'calibration' | 'limits'>,
): { step: StepModel; prefill: PrefillSide | undefined } {
  const { decode, prefill } = enginesOf(deployment);
  const step = new StepModel(decode, calibration, limits);
  if (prefill === undefined) return { step, prefill: undefined };
  const first = new StepModel(prefill, calibration, limits);
  return { step, prefill: { step: first, bytesPerSecond: first.handoverRate(decode, calibration.links) } };
}

function fluidOf({ step, prefill }: ReturnType<typeof stepsOf>, { limits }: PlanOptions, lengths: Moments): FluidLike {
  if (prefill === undefined) return new Fluid(step, limits, lengths);
  const handoverS = prefill.step.transferSeconds(lengths.input.mean, prefill.bytesPerSecond);
  const [first, second] = [
    new Fluid(prefill.step, limits, lengths, 'prefill'),
    new Fluid(step, limits, lengths, 'decode'),
  ];
  return new FluidPair(first, second, handoverS);
}

const isPlain = (spread: Parallelism) => parallelismText(spread) === `TP ${spread.tp}`;

/** From this length on, sharing a prompt's tokens between GPUs is worthwhile. */
const LONG_PROMPT_TOKENS = 8_000;

/**
 * Returns tensor parallelism and the kinds that the workload requests in addition, as far as the pool's launcher can
 * pass them to an engine.
 */
export function parallelismsTried(demand: Demand, pool: Pool): Parallelism[] {
  const plain = parallelisms(demand, pool).map((tp): Parallelism => ({ tp }));
  const kinds = demand.parallelism ?? [];
  if (kinds.length === 0) return plain;
  const allowed = (spread: Parallelism) => pool.allows?.(demand.model.id, spread) ?? true;
  const tps = (demand.tp ?? PARALLELISMS).filter((tp) => tpProblem(demand.model, tp) === undefined);
  const pairs = kinds.includes('disaggregated') ? pairsOf(demand.model, tps, pool.gpusPerNode) : [];
  const longPrompts = kinds.includes('sequence') && meanLength(demand.input) >= LONG_PROMPT_TOKENS;
  const slow = kinds.includes('pipeline') && pool.gpu.link.startsWith('pcie');
  const more = parallelismsOf(demand.model, pool.gpusPerNode, { fastLink: !slow, longPrompts }).filter((one) => {
    const { pp, dp, ep, sp } = spreadOf(one);
    const wanted = (kind: ParallelismKind, used: boolean) => !used || kinds.includes(kind);
    return (
      !isPlain(one) &&
      (demand.tp?.includes(one.tp) ?? true) &&
      wanted('pipeline', pp > 1) &&
      wanted('data', dp > 1) &&
      wanted('expert', ep) &&
      wanted('sequence', sp > 1)
    );
  });
  return [...plain, ...more.filter(allowed), ...pairs.filter(allowed)];
}

function fits(deployment: ModelDeployment, demand: Demand, sequences: number, settings: PlanOptions): boolean {
  if (deploymentProblem(deployment, settings.limits.memoryFraction) !== undefined) return false;
  const tokens = meanLength(demand.input) + meanLength(demand.output);
  const { memoryFraction } = settings.limits;
  const { decode, prefill } = enginesOf(deployment);
  const holds = (engine: ModelDeployment) => kvCapacityTokens(engine, memoryFraction, tokens) >= sequences * tokens;
  return holds(decode) && (prefill === undefined || holds(prefill));
}
