import type { PlanOptions } from '../../scheduler/solver/planning-problem.ts';
import { solvePlan } from '../../scheduler/solver/solve-plan.ts';
import { judge } from './exhaustive.ts';
import type { Instance } from './instances.ts';

/** Compares a plan with the best of all plans. */
export interface Verdict {
  /** served: as required. targets: all requests served, but late. demand: not all requests can be served. */
  kind: 'served' | 'targets' | 'demand';
  /** Relative distance from the best, in the measure of its kind. */
  worse: number;
  /** The plan's own bound on that distance. */
  gap: number;
  proven: boolean;
  /** Conditions that the plan breaks; empty if there are none. */
  faults: string[];
  plans: number;
  seconds: number;
}

/** Relative differences below this are rounding errors. */
const ROUNDING = 2e-6;

/** Plans, tries all plans, and compares. */
export async function verdictOn(instance: Instance, settings: PlanOptions): Promise<Verdict> {
  const { pools, demands } = instance;
  const started = performance.now();
  const { counts, problem, report, shortfall } = await solvePlan(pools, demands, [], settings);
  const seconds = (performance.now() - started) / 1e3;
  const { best, rate } = judge(instance, settings);
  const plan = rate(
    problem.options.flatMap((option, o) => {
      const [model, pool] = [demands[option.demand]?.model.id ?? '', pools[option.pool]?.id ?? ''];
      return (counts[o] ?? 0) > 0 ? [{ model, pool, tp: option.tp, replicas: counts[o] ?? 0 }] : [];
    }),
  );
  const faults: string[] = [];
  const kind = settings.objective === 'throughput' ? 'served' : (shortfall ?? 'served');
  const should = best.asked !== undefined ? 'served' : best.waiting !== undefined ? 'targets' : 'demand';
  if (kind !== should) faults.push(`says ${kind}, and a plan for ${should} exists`);
  if (plan.placed < best.placed && kind === 'demand')
    faults.push(`${plan.placed} models have a replica, ${best.placed} could`);
  const compare = { served: [plan.asked, best.asked], targets: [plan.waiting, best.waiting] } as const;
  const [mine, least] = kind === 'demand' ? [-Math.min(1, plan.share), -Math.min(1, best.share)] : compare[kind];
  const worse = relative(mine, least);
  if (report.status !== 'time-limit' && worse > settings.gap + ROUNDING)
    faults.push(`is ${(worse * 100).toFixed(2)} % worse than the best, asked was ${(settings.gap * 100).toFixed(2)} %`);
  if (report.proven && worse > report.gap + ROUNDING)
    faults.push(`is ${(worse * 100).toFixed(2)} % worse than the best and says ${(report.gap * 100).toFixed(2)} %`);
  return { kind, worse, gap: report.gap, proven: report.proven, faults, plans: best.plans, seconds };
}

function relative(mine: number | undefined, least: number | undefined): number {
  if (mine === undefined || least === undefined) return mine === least ? 0 : 1;
  return Math.max(0, (mine - least) / Math.max(1e-9, Math.abs(mine), Math.abs(least)));
}
