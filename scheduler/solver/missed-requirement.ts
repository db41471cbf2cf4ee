import { formulate, usdPerHour } from './formulation.ts';
import { GoalSolver } from './goal-solver.ts';
import { solve } from './highs.ts';
import { problemOf, type SolverContext } from './solver-context.ts';

/**
 * The requirement that a plan misses. targets: all requests are served, but with higher latency than required. demand:
 * not all requests can be served.
 */
export type Shortfall = 'targets' | 'demand';

/** The constraint that limits the served demand, and the smallest change of a requirement that would help. */
export interface Relief {
  binds: 'latency' | 'budget' | 'gpus';
  /** Mean seconds that every model could keep to, if the latency target is the constraint. */
  latencyS?: number;
  /** USD per hour that would suffice, if the budget is the constraint. */
  usdPerHour?: number;
}

/** Time limit of this search, seconds, in addition to the plan's time limit, which is used up by then. */
const SECONDS = 1;

export async function relief(context: SolverContext, shortfall: Shortfall): Promise<Relief> {
  const { settings } = context;
  if (settings.budget !== undefined) {
    const { budget: _, ...unbounded } = settings;
    const free: SolverContext = { ...context, settings: { ...unbounded, objective: 'cost', gap: 0.05 } };
    const cheapest = await new GoalSolver(free, { kind: 'replicas' }, performance.now() + SECONDS * 1e3).solve();
    if (cheapest.counts !== undefined && Number.isFinite(cheapest.value)) {
      const { options, pools } = cheapest.problem;
      const usd = options.reduce((sum, option, o) => sum + (cheapest.counts?.[o] ?? 0) * usdPerHour(option, pools), 0);
      return { binds: 'budget', usdPerHour: usd };
    }
  }
  if (shortfall === 'targets') {
    const latencyS = await leastLatency(context);
    return latencyS === undefined ? { binds: 'latency' } : { binds: 'latency', latencyS };
  }
  return { binds: 'gpus' };
}

/**
 * Finds, within one percent, the lowest latency target for all models with which the relaxation serves all requests.
 */
async function leastLatency(context: SolverContext): Promise<number | undefined> {
  const until = performance.now() + SECONDS * 1e3;
  const served = async (latencyS: number) => {
    const targets = context.targets.map(() => ({ latencyS, asked: true }));
    const goal =
      context.settings.objective === 'latency'
        ? ({ kind: 'latency', share: 1 } as const)
        : ({ kind: 'replicas' } as const);
    // Estimates are better than simulations. So the options that the solution uses are simulated and the program is
    // solved again, until the solution uses only simulated options.
    for (;;) {
      const { program, replicas } = formulate(problemOf({ ...context, targets }, goal));
      const { values } = await solve(program, { timeLimitS: SECONDS, gap: 0, seed: 1, relaxed: true });
      if (values.length === 0) return false;
      let changed = false;
      context.table.options.forEach((option, o) => {
        if ((values[replicas[o] ?? 0] ?? 0) > 1e-6 && context.table.simulateOption(option, true)) changed = true;
      });
      if (!changed) return true;
    }
  };
  const asked = Math.min(...context.targets.map(({ latencyS }) => latencyS));
  if (!Number.isFinite(asked)) return undefined;
  let [low, high] = [asked, Math.max(asked, 1e-3) * 1e4];
  if (!(await served(high))) return undefined;
  while (high / low > 1.01 && performance.now() < until) {
    const middle = Math.sqrt(low * high);
    if (await served(middle)) high = middle;
    else low = middle;
  }
  return high;
}
