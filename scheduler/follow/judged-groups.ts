/**
 * Groups of requests that a gateway can send to different replicas. A gateway judges the kind of a request when it
 * arrives, before the length of its response is known. So the requests that it judges to be of one kind, its group, are
 * of several kinds. A plan by kinds would separate requests that no router can separate.
 */
import type { KindLengths } from '../workload/request-kinds.ts';
import { type FollowProblem, type ForecastDemand, optionsOf, type ReplicaOption } from './follow-problem.ts';

/** `confusion[kind][group]`: requests of a kind that were judged to be of the group. */
export type Confusion = readonly (readonly number[])[];

/** Number of judged requests from which on groups are planned. With fewer, every request counts as judged right. */
const JUDGED_MIN = 50;
/** Share of the earlier counts that remains at each look. */
const KEPT = 0.98;

/** Adds the counts of a look. Counts of other kinds are forgotten. */
export function addConfusion(before: Confusion | undefined, counts: Confusion, kinds: number): Confusion | undefined {
  if (!isOf(counts, kinds)) return undefined;
  if (before === undefined || !isOf(before, kinds)) return counts;
  return counts.map((row, kind) => row.map((count, group) => KEPT * (before[kind]?.[group] ?? 0) + count));
}

const isOf = (confusion: Confusion, kinds: number) =>
  confusion.length === kinds && confusion.every((row) => row.length === kinds);

/**
 * The same problem for the groups of one model. A group has the requests/s that are judged to be of it. Its rate at a
 * replica follows from the time that the replica takes for the requests that the group has over the horizon.
 */
export function groupedProblem(problem: FollowProblem, demand: ForecastDemand, confusion: Confusion): FollowProblem {
  const judged = confusion.flat().reduce((sum, count) => sum + count, 0);
  if (judged < JUDGED_MIN || !isOf(confusion, demand.kinds.length)) return problem;
  const shares = confusion.map(sharesOfGroups);
  const mix = mixOfGroups(demand, shares);
  const own = new Set(optionsOf(problem, demand.model));
  return {
    ...problem,
    options: problem.options.map((option, i) => (own.has(i) ? groupedOption(option, mix) : option)),
    models: problem.models.map((one) => (one === demand ? groupedDemand(demand, shares, mix) : one)),
  };
}

/** Shares of one kind's requests in each group. A kind that was never judged is its own group. */
function sharesOfGroups(row: readonly number[], kind: number): number[] {
  const total = row.reduce((sum, count) => sum + count, 0);
  return row.map((count, group) => (total > 0 ? count / total : Number(group === kind)));
}

/** `mix[group][kind]`: shares of the kinds in the group's requests over the horizon. */
function mixOfGroups({ mean }: ForecastDemand, shares: readonly (readonly number[])[]): number[][] {
  const expected = shares.map((_, kind) => mean.reduce((sum, rates) => sum + (rates[kind] ?? 0), 0));
  return shares.map((_, group) => {
    const parts = expected.map((rate, kind) => rate * (shares[kind]?.[group] ?? 0));
    const total = parts.reduce((sum, part) => sum + part, 0);
    return parts.map((part, kind) => (total > 0 ? part / total : Number(kind === group)));
  });
}

/** A replica that cannot serve one of the kinds cannot serve the group. */
function groupedOption(option: ReplicaOption, mix: readonly (readonly number[])[]): ReplicaOption {
  const { rates, latencyS } = option;
  const over = (kinds: readonly number[], seconds: (kind: number) => number) =>
    kinds.reduce((sum, share, kind) => (share > 0 ? sum + share * seconds(kind) : sum), 0);
  return {
    ...option,
    rates: mix.map((kinds) => 1 / over(kinds, (kind) => 1 / (rates[kind] ?? 0))),
    latencyS: mix.map((kinds) => over(kinds, (kind) => latencyS[kind] ?? Number.POSITIVE_INFINITY)),
  };
}

function groupedDemand(
  demand: ForecastDemand,
  shares: readonly (readonly number[])[],
  mix: readonly (readonly number[])[],
): ForecastDemand {
  const grouped = (steps: ForecastDemand['mean']) =>
    steps.map((rates) =>
      rates.map((_, group) => rates.reduce((sum, rate, kind) => sum + rate * (shares[kind]?.[group] ?? 0), 0)),
    );
  const { examples } = demand;
  return {
    ...demand,
    mean: grouped(demand.mean),
    high: grouped(demand.high),
    ...(examples === undefined ? {} : { examples: mix.map((kinds) => mixedExamples(kinds, examples)) }),
  };
}

/** Number of lengths that describe a group. */
const EXAMPLES = 400;

/** Lengths of a group's requests: of each kind as many as its share, at equal distances in its examples. */
function mixedExamples(mix: readonly number[], examples: NonNullable<ForecastDemand['examples']>): KindLengths[] {
  return mix.flatMap((share, kind) => {
    const own = examples[kind] ?? [];
    const count = own.length === 0 ? 0 : Math.round(share * EXAMPLES);
    return Array.from(
      { length: count },
      (_, n) => own[Math.floor((n * own.length) / count)] ?? { input: 1, output: 1 },
    );
  });
}
