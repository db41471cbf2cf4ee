import { SchedulerError } from '../../../../scheduler/errors.ts';
import { ArrivalHistory } from '../../../../scheduler/regions/learned/entry-state.ts';
import { means } from '../../../../scheduler/regions/learned/learned-policy.ts';
import type { MacroInput, MacroPlan, MacroPlanner } from '../problem.ts';
import { smoothingPlanner } from '../smoothing-planner.ts';
import { byOrigin, stateOf } from './features.ts';
import { readPolicy } from './policy-file.ts';
import { type ResidualPolicy, shapedShares } from './residual-policy.ts';

/** The mean action of the policy in a file. If the file is unusable, the QP plans instead and reports why. */
export function policyPlanner(path: string): MacroPlanner {
  try {
    return residualPlanner(readPolicy(path));
  } catch (error) {
    if (!(error instanceof SchedulerError)) throw error;
    const qp = smoothingPlanner();
    const note = `${error.message}: the smoothing QP plans instead`;
    return {
      name: qp.name,
      async plan(input) {
        return { ...(await qp.plan(input)), note };
      },
    };
  }
}

/** One decision of the policy. */
export interface Decision {
  /** By entry: see `features.ts`. */
  state: Float64Array;
  shapes: Float64Array;
  /** The action: one value in (0, 1) per origin and region. */
  x: Float64Array;
  /** The teacher's shares, by origin and type, and region: the QP's plan. */
  planned: Float64Array;
  shares: Float64Array;
  /** Shares of the previous slot; undefined in the first. */
  previous: Float64Array | undefined;
}

export interface ResidualOptions {
  /** Chooses the action; absent: the mean. */
  play?: (shapes: Float64Array) => Float64Array;
  decided?: (decision: Decision, input: MacroInput) => void;
}

/** The QP's plan with the policy's factors. It keeps the QP's state, and so plans one run. */
export function residualPlanner(policy: ResidualPolicy, options: ResidualOptions = {}): MacroPlanner {
  const qp = smoothingPlanner();
  const history = new ArrivalHistory();
  let previous: Float64Array | undefined;
  const { play = means, decided } = options;
  return {
    name: 'PPO',
    async plan(input: MacroInput): Promise<MacroPlan> {
      const { shares: planned } = await qp.plan(input);
      const regions = input.world.topology.regions.length;
      const [mean, before] = [byOrigin(planned, regions), byOrigin(previous ?? planned, regions)];
      const state = stateOf(input, mean, before, history);
      if (input.arrived !== undefined)
        history.observe(input.arrived.map((line) => line.reduce((sum, count) => sum + count, 0)));
      const shapes = policy.allShapes(state);
      const x = play(shapes);
      const shares = shapedShares(planned, x, regions);
      decided?.({ state, shapes, x, planned, shares, previous }, input);
      previous = shares;
      return { shares, planner: 'PPO' };
    },
  };
}
