import { type Evaluation, evaluatePlan } from '../../scheduler/solver/evaluate-plan.ts';
import { latencyTarget, type UsableCapacity, usableCapacity } from '../../scheduler/solver/latency-targets.ts';
import { OptionTable } from '../../scheduler/solver/option-table.ts';
import { packs } from '../../scheduler/solver/packing-constraints.ts';
import type { Counts, Demand, Option, PlanOptions, Pool } from '../../scheduler/solver/planning-problem.ts';
import type { Instance } from './instances.ts';

/** The best results of any set of replicas, found by trying all sets on simulated options. */
interface Best {
  /** Best value of the requested objective; undefined if no plan keeps all conditions. */
  asked: number | undefined;
  /** Lowest sum over requests/s of their seconds, without targets; undefined if not all requests can be served. */
  waiting: number | undefined;
  /** Largest share of the worst served model. */
  share: number;
  /** Most models with a replica simultaneously. */
  placed: number;
  /** Number of plans tried. */
  plans: number;
}

export interface Judge {
  best: Best;
  /** Rates a plan by the same rules. */
  rate(placements: readonly { model: string; pool: string; tp: number; replicas: number }[]): Rating;
}

interface Rating {
  /** In the unit of the objective, lower is better: GPUs, USD/h, seconds of waiting, minus the share. */
  asked: number | undefined;
  waiting: number | undefined;
  share: number;
  placed: number;
  gpus: number;
}

/** Simulates every option and tries every plan. Only for a few GPUs. */
export function judge({ pools, demands }: Instance, settings: PlanOptions): Judge {
  const table = new OptionTable(demands, pools, settings);
  const targets = demands.map((demand, m) => latencyTarget(demand, table.estimatesOf(m), settings));
  for (const option of table.options) table.simulateOption(option, true);
  const usable = (objective: PlanOptions['objective'], kept: boolean): UsableCapacity[] =>
    table.options.map((option) => {
      const target = targets[option.demand];
      if (target === undefined) throw new Error('a model without a target');
      return usableCapacity(option, kept ? target : { ...target, asked: false }, { objective });
    });
  const sets = {
    asked: usable(settings.objective, true),
    patient: usable(settings.objective === 'throughput' ? 'throughput' : 'latency', false),
  };
  const rating = (counts: Counts) => rated(table.options, counts, pools, demands, settings, sets);
  const best: Best = { asked: undefined, waiting: undefined, share: 0, placed: 0, plans: 0 };
  const less = (a: number | undefined, b: number | undefined) => (b === undefined ? a : Math.min(a ?? b, b));
  for (const counts of allCounts(table.options, pools)) {
    const one = rating(counts);
    if (one === undefined) continue;
    best.plans++;
    best.asked = less(best.asked, one.asked);
    best.waiting = less(best.waiting, one.waiting);
    best.share = Math.max(best.share, one.share);
    best.placed = Math.max(best.placed, one.placed);
  }
  return {
    best,
    rate(placements) {
      const counts = table.options.map((option) => {
        const [model, pool] = [demands[option.demand]?.model.id, pools[option.pool]?.id];
        const mine = placements.filter((one) => one.model === model && one.pool === pool && one.tp === option.tp);
        return mine.reduce((sum, { replicas }) => sum + replicas, 0);
      });
      const one = packs(table.options, counts, pools) ? rating(counts) : undefined;
      if (one === undefined) throw new Error('the plan breaks a condition');
      return one;
    },
  };
}

/** Undefined if a condition of all objectives is broken: tiers and budget. */
function rated(
  options: readonly Option[],
  counts: Counts,
  pools: readonly Pool[],
  demands: readonly Demand[],
  settings: PlanOptions,
  sets: { asked: readonly UsableCapacity[]; patient: readonly UsableCapacity[] },
): Rating | undefined {
  const has = (m: number, stable: boolean) =>
    options.some(
      (option, o) =>
        option.demand === m && (counts[o] ?? 0) > 0 && !(stable && pools[option.pool]?.tier === 'volatile'),
    );
  if (demands.some(({ alwaysOn }, m) => alwaysOn === true && !has(m, true))) return undefined;
  const sum = (of: (option: Option) => number) =>
    options.reduce((all, option, o) => all + (counts[o] ?? 0) * of(option), 0);
  const gpus = sum((option) => option.gpus);
  const usd = sum((option) => option.gpus * (pools[option.pool]?.gpu.usdPerHour ?? 0));
  if (usd > (settings.budget ?? Number.POSITIVE_INFINITY)) return undefined;
  const asked = evaluatePlan(options, sets.asked, counts, demands);
  const patient = evaluatePlan(options, sets.patient, counts, demands);
  const all = ({ unserved }: Evaluation) => unserved.every((rate) => rate === 0);
  const value = { gpus, cost: usd, latency: asked.waiting, throughput: -asked.share }[settings.objective];
  const served = settings.objective === 'throughput' || all(asked);
  return {
    asked: served ? value : undefined,
    waiting: all(patient) ? patient.waiting : undefined,
    share: patient.share,
    placed: demands.filter((_, m) => has(m, false)).length,
    gpus,
  };
}

/** Yields every set of replicas that fits the pools. */
function* allCounts(options: readonly Option[], pools: readonly Pool[]): Generator<number[]> {
  const counts = options.map(() => 0);
  function* from(o: number): Generator<number[]> {
    if (o === options.length) return void (yield [...counts]);
    for (let n = 0; ; n++) {
      counts[o] = n;
      if (!packs(options, counts, pools)) break;
      yield* from(o + 1);
    }
    counts[o] = 0;
  }
  yield* from(0);
}
