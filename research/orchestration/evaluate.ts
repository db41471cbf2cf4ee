import { balance } from '../../scheduler/orchestration/assignment.ts';
import type { RateTable } from '../../scheduler/orchestration/rates.ts';
import type { Assignment, DeploymentPlan } from '../../scheduler/orchestration/types.ts';

/** What is expected of the time that a plan is for. */
export interface ExpectedLoad {
  /** Requests/s of each kind. */
  demand: readonly number[];
  /** The same, as high as it may well be: what the forecast's interval ends with. */
  high: readonly number[];
  /** Seconds that it is for. */
  horizonS: number;
}

export interface Evaluation {
  plan: DeploymentPlan;
  assignment: Assignment;
  /** Seconds: what the search makes small. */
  score: number;
  /** Seconds of an answer without a backlog, weighted towards the slow kinds. */
  latencyS: number;
  /** Load at the expected and at the high demand. */
  load: number;
  highLoad: number;
}

/** Up to this load kinds go where they are answered soonest; above it the load decides. */
const IDLE_LOAD = 0.7;
/** A power mean of latencies: between the mean (1) and the slowest kind (∞), since the goal is the tail. */
const TAIL_POWER = 3;
/** A replica fuller than this queues more than averages tell. */
const FULL = 0.92;
/** Arrivals are somewhat burstier than Poisson's. */
const ARRIVALS_CV = 1.3;

/**
 * How long answers take under a plan: kinds are assigned by linear program, each group's batch by averages (`serving/fluid`). Demand above
 * what it can do waits: the mean wait of an excess that lasts the horizon.
 */
export function evaluate(table: RateTable, plan: DeploymentPlan, expected: ExpectedLoad): Evaluation {
  const groups = plan.map(({ shape }) => table.of(shape));
  const problem = {
    rates: groups.map(({ rates }) => rates),
    replicas: plan.map(({ replicas }) => replicas),
    demand: expected.demand,
  };
  const preference = {
    cost: groups.map(({ latencyS }) => latencyS.map((s) => (Number.isFinite(s) ? s : 1e4))),
    idle: IDLE_LOAD,
  };
  const assignment = balance(problem, preference);
  const high = balance({ ...problem, demand: expected.high });
  const total = expected.demand.reduce((sum, one) => sum + one, 0);
  let powers = 0;
  for (const [g, group] of plan.entries()) {
    const flow = assignment.flow[g] ?? [];
    const rate = flow.reduce((sum, one) => sum + one, 0) / group.replicas;
    if (rate <= 0) continue;
    const fluid = table.fluid(group.shape, flow);
    const { ttftS, stepS } = fluid.at(Math.min(rate, fluid.saturated().rate * 0.98), ARRIVALS_CV);
    for (const [j, amount] of flow.entries()) {
      const tokens = table.kinds[j]?.moments.output.mean ?? 1;
      powers += amount * (ttftS + tokens * stepS) ** TAIL_POWER;
    }
  }
  const latencyS = total > 0 ? (powers / total) ** (1 / TAIL_POWER) : 0;
  const over = (load: number) => Math.max(0, load - FULL) * (expected.horizonS / 2);
  const lost = expected.demand.some((one, j) => one > 1e-9 && (assignment.served[j] ?? 0) < one * 0.999);
  const score = latencyS + over(assignment.load) + over(high.load) / 2 + (lost ? 1e6 : 0);
  return { plan, assignment, score, latencyS: latencyS + (lost ? 1e6 : 0), load: assignment.load, highLoad: high.load };
}

/** A backlog never drains slower than at this share of the capacity: demand does not stay above it for ever. */
const SPARE_MIN = 0.05;

/** Request seconds of waiting behind demand above the capacity, as a fluid: until the end of the horizon, and while what is left then drains. */
export function overloadSeconds({ demand, horizonS }: ExpectedLoad, load: number): number {
  const total = demand.reduce((sum, one) => sum + one, 0);
  if (load <= 1) return 0;
  const left = (total - total / load) * horizonS;
  return (left * horizonS) / 2 + left ** 2 / (2 * SPARE_MIN * (total / load));
}
