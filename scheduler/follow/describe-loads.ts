/**
 * Describes a layout for people: which replicas serve which kinds, which replicas are the bottleneck, and how much more
 * demand they could serve.
 */
import { balance } from '../assignment/demand-assignment.ts';
import { type FollowProblem, type ForecastDemand, type Layout, placeText } from './follow-problem.ts';
import { demandShares } from './transition-cost.ts';

/** A lower rate, in requests/s, is not mentioned. */
const RATE_SHOWN_MIN = 0.005;

/** Describes one model in one slot of the forecast. */
function loadText(problem: FollowProblem, demand: ForecastDemand, layout: Layout, step: number): string {
  const wanted = demand.mean[step] ?? demand.mean.at(-1) ?? [];
  const { indexes, assignment } = demandShares(problem, demand, layout, wanted);
  if (indexes.length === 0) return 'nothing serves it';
  const nameOf = (i: number) => {
    const place = problem.options[i]?.place;
    return place === undefined ? '?' : placeText(problem, place);
  };
  const groups = indexes.map((i, k) => {
    const kinds = (assignment.flow[k] ?? []).flatMap((amount, j) =>
      amount >= RATE_SHOWN_MIN ? [`${demand.kinds[j]} ${amount.toFixed(2)}/s`] : [],
    );
    const full = `${Math.round(100 * (assignment.loads[k] ?? 0))} % full`;
    return `${layout[i]} × ${nameOf(i)} ${full} (${kinds.join(', ') || 'nothing'})`;
  });
  const lost = demand.kinds.filter((_, j) => (wanted[j] ?? 0) >= RATE_SHOWN_MIN && (assignment.served[j] ?? 0) === 0);
  const unserved = lost.map((name) => `no replica can hold ${name}`);
  return [...groups, ...unserved, ...growthText(problem, layout, wanted, indexes, nameOf)].join('; ');
}

/**
 * Describes which multiple of the demand the replicas can serve, and the bottleneck: the replica that helps most if one
 * like it is added.
 */
function growthText(
  problem: FollowProblem,
  layout: Layout,
  wanted: readonly number[],
  indexes: readonly number[],
  nameOf: (option: number) => string,
): string[] {
  // Computed without the preference for quick replicas. With it, quick replicas would look full while slower ones are
  // idle.
  const timesWith = (more?: number): number => {
    const rates = indexes.map((i) => problem.options[i]?.rates ?? []);
    const replicas = indexes.map((i) => (layout[i] ?? 0) + (i === more ? 1 : 0));
    const { load } = balance({ rates, replicas, demand: wanted });
    return load > 0 ? 1 / load : Number.POSITIVE_INFINITY;
  };
  const times = timesWith();
  if (!Number.isFinite(times)) return [];
  const can = `they can do ${times.toFixed(2)} times that${times < 1 ? ', so a queue grows' : ''}`;
  const [most] = indexes.map((i) => ({ i, times: timesWith(i) })).sort((a, b) => b.times - a.times);
  if (indexes.length < 2 || most === undefined) return [can];
  return [can, `the bottleneck is ${nameOf(most.i)}: with one more ${most.times.toFixed(2)} times`];
}

/** Describes the layout of the next slot and, if a change is planned, the layout after it. */
export function loadsText(
  problem: FollowProblem,
  demand: ForecastDemand,
  { next, inSlots }: { next: Layout | undefined; inSlots: number },
): string {
  const now = loadText(problem, demand, problem.running, 0);
  const changes = problem.options.some(
    ({ place }, i) => place.model === demand.model && next !== undefined && next[i] !== problem.running[i],
  );
  return next === undefined || !changes ? now : `${now}. After the change: ${loadText(problem, demand, next, inSlots)}`;
}
