import { seeded } from '../serving/random.ts';
import type { Formulation, Problem } from './formulation.ts';
import { solve } from './highs.ts';
import { packs } from './packing.ts';

/** Models that are decided anew at a time: with their options a program of some hundred integers, which HiGHS solves in about a second. */
const MODELS_AT_ONCE = 10;
/** Seconds for one neighbourhood. */
const ROUND_S = 2;

interface Incumbent {
  counts: number[];
  /** By column of the formulation. */
  values: Float64Array;
  objective: number;
}

/**
 * Large neighbourhood search (Shaw 1998): all models but a few keep their replicas, and those few are placed anew, exactly, in what is
 * left. For problems too large to branch on whole. `seconds` bounds it; the result is never worse.
 */
export async function improve(
  problem: Problem,
  formulation: Formulation,
  start: Incumbent,
  seconds: number,
): Promise<Incumbent> {
  const { options, settings, pools } = problem;
  const { program, replicas } = formulation;
  const random = seeded(settings.seed);
  const until = performance.now() + seconds * 1e3;
  const highest = replicas.map((column) => program.bounds(column));
  let best = start;
  for (let round = 0; performance.now() < until; round++) {
    const free = chosen(problem, best.counts, random, round);
    options.forEach((option, o) => {
      const kept = best.counts[o] ?? 0;
      const [low, high] = free.has(option.demand) ? (highest[o] ?? [0, 0]) : [kept, kept];
      program.setBounds(replicas[o] ?? 0, low, high);
    });
    const left = (until - performance.now()) / 1e3;
    const solved = await solve(program, {
      timeLimitS: Math.min(ROUND_S, Math.max(0.1, left)),
      gap: settings.gap / 5,
      seed: settings.seed,
      start: [...best.values],
    });
    if (solved.values.length === 0 || solved.objective > best.objective - 1e-7 * Math.abs(best.objective)) continue;
    const counts = options.map((_, o) => Math.round(solved.values[replicas[o] ?? 0] ?? 0));
    if (packs(options, counts, pools)) best = { counts, values: solved.values, objective: solved.objective };
  }
  replicas.forEach((column, o) => {
    const [low, high] = highest[o] ?? [0, 0];
    program.setBounds(column, low, high);
  });
  return best;
}

/** Every second time the worst served come first; the others are drawn. */
function chosen(
  { options, demands }: Problem,
  counts: readonly number[],
  random: () => number,
  round: number,
): Set<number> {
  const set = new Set<number>();
  if (round % 2 === 0) {
    const capacity = demands.map(() => 0);
    options.forEach((option, o) => {
      capacity[option.demand] = (capacity[option.demand] ?? 0) + (counts[o] ?? 0) * option.capacity;
    });
    const share = demands.map((demand, m) => ({ m, share: (capacity[m] ?? 0) / Math.max(demand.rate, 1e-12) }));
    share.sort((a, b) => a.share - b.share);
    for (const { m } of share.slice(0, MODELS_AT_ONCE / 2)) set.add(m);
  }
  while (set.size < Math.min(MODELS_AT_ONCE, demands.length)) set.add(Math.floor(random() * demands.length));
  return set;
}
