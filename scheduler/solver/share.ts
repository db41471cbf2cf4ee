import { Columns } from './columns.ts';
import { evaluate } from './evaluate.ts';
import type { Problem } from './formulation.ts';
import type { Counts } from './problem.ts';

/** Relative width at which the search for the largest share ends: far below any gap that is asked for. */
const CLOSE = 0.005;
/** Of the largest share that fractions of configurations reach, what whole ones are tried for. */
const WHOLE = [0.995, 0.985, 0.97, 0.95, 0.92, 0.88];
/** Of the time, for the bound. */
const BOUND_SHARE = 0.6;

/**
 * The largest share that every model reaches, for problems too large to branch on. For a given share each model needs a configuration that
 * reaches it; the pools hold them all or they do not, and a bisection finds where that changes.
 */
export async function shareByColumns(
  problem: Problem,
  known: Counts | undefined,
  atMost: number,
  prices: readonly number[],
  deadline: number,
): Promise<{ counts: Counts | undefined; atMost: number; fractions: number[] }> {
  const { options, usable, demands } = problem;
  const shareOf = (counts: Counts) => evaluate(options, usable, counts, demands).share;
  let best = known;
  let low = known === undefined ? 0 : shareOf(known);
  let high = atMost;
  let fractions: number[] = [];
  let last: Columns | undefined;
  let start = prices;
  const boundUntil = performance.now() + (deadline - performance.now()) * BOUND_SHARE;
  let fits = low;
  while (high > fits * (1 + CLOSE) && performance.now() < boundUntil) {
    const share = fits > high / 3 ? Math.sqrt(fits * high) : high / 2;
    const columns = columnsAt(problem, share, last, best);
    const { bound, value, values, prices: next } = await columns.relax(boundUntil, 1 + 1e-6, start);
    last = columns;
    start = next ?? start;
    if (bound > 1 + 1e-6) high = share;
    else if (value <= 1 + 1e-9) {
      fits = share;
      fractions = columns.fractions(values);
    } else break;
  }
  for (const part of WHOLE) {
    const share = fits * part;
    if (share <= low * (1 + CLOSE / 2) || performance.now() > deadline) break;
    const columns = columnsAt(problem, share, last, best);
    await columns.relax(Math.min(deadline, performance.now() + 0.2 * (deadline - performance.now())), 1 + 1e-6, start);
    const counts = await columns.choose(Math.min(3, (deadline - performance.now()) / 2e3), 0.5);
    if (counts === undefined) continue;
    best = counts;
    low = shareOf(counts);
    break;
  }
  return { counts: best, atMost: high, fractions };
}

function columnsAt(problem: Problem, share: number, last: Columns | undefined, best: Counts | undefined): Columns {
  const columns = new Columns(problem, share);
  if (last !== undefined) columns.adopt(last);
  if (best !== undefined) columns.learn(best);
  return columns;
}
