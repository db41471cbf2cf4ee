import { SchedulerError } from '../../../../scheduler/errors.ts';
import type { Topology } from '../../world/topology.ts';
import { capacities, forAllTypes } from '../paper-transport.ts';
import type { MacroInput, MacroPlan, MacroPlanner } from '../problem.ts';
import { smoothingPlanner } from '../smoothing-planner.ts';
import { stateOf } from './environment.ts';
import { type BetaPolicy, normaliseRows } from './policy.ts';
import { readPolicy } from './policy-file.ts';

/** The mean action of a trained policy. If the policy is unusable, the smoothing QP plans instead and reports why. */
export function policyPlanner(path: string, topology: Topology): MacroPlanner {
  try {
    return new PolicyPlanner(readPolicy(path, topology));
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

class PolicyPlanner implements MacroPlanner {
  readonly name = 'PPO';
  readonly #policy: BetaPolicy;
  #previous: Float64Array;

  constructor(policy: BetaPolicy) {
    this.#policy = policy;
    this.#previous = new Float64Array(policy.regions ** 2).fill(1 / policy.regions);
  }

  plan(input: MacroInput): MacroPlan {
    const { regions } = this.#policy;
    const rooms = capacities(input).map((worth) => worth * input.slotS);
    const demand = input.demand.map((line) => line.reduce((sum, count) => sum + count, 0));
    const state = stateOf(input.use, input.backlogS, rooms, demand, this.#previous);
    const raw = this.#policy.mean(this.#policy.shapes(state));
    // A region without servers gets no share, regardless of the policy.
    const shares = normaliseRows(
      raw.map((value, e) => ((rooms[e % regions] ?? 0) > 0 ? value : 0)),
      regions,
    );
    this.#previous = shares;
    return { shares: forAllTypes(shares, regions), planner: this.name };
  }
}
