import type { RateTable } from '../../scheduler/assignment/rate-table.ts';
import type { Assignment } from '../../scheduler/assignment/types.ts';
import type { DeploymentPlan } from './deployment-plan.ts';
import { planAssignment } from './plan-assignment.ts';

/** The expected load for the duration of a plan. */
export interface ExpectedLoad {
  /** Requests/s of each kind. */
  demand: readonly number[];
  /** The same at the upper end of the forecast's interval. */
  high: readonly number[];
  /** Duration, seconds. */
  horizonS: number;
}

export interface Evaluation {
  plan: DeploymentPlan;
  assignment: Assignment;
  /** Seconds: the value that the search minimizes. */
  score: number;
  /** Seconds of a response without a backlog, weighted towards the slow kinds. */
  latencyS: number;
  /** Load at the expected and at the high demand. */
  load: number;
  highLoad: number;
}

/** Up to this load, kinds go to the replicas with the lowest latency; above it the load decides. */
const IDLE_LOAD = 0.7;
/**
 * Exponent of the power mean of latencies: between the mean (1) and the slowest kind (∞), because the goal is the tail.
 */
const TAIL_POWER = 3;
/** Above this load, a replica queues more than averages predict. */
const FULL = 0.92;
/** Arrivals are somewhat burstier than Poisson. */
const ARRIVALS_CV = 1.3;

/**
 * Estimates latencies under a plan: a linear program assigns kinds, and averages describe each group's batch
 * (`serving/fluid`). Demand above the capacity waits: the mean wait of an excess that lasts for the horizon.
 */
export function evaluate(table: RateTable, plan: DeploymentPlan, expected: ExpectedLoad): Evaluation {
  const latencies = plan.map(({ shape }) => table.of(shape).latencyS);
  const cost = latencies.map((ofKinds) => ofKinds.map((s) => (Number.isFinite(s) ? s : 1e4)));
  const assignment = planAssignment(table, plan, expected.demand, { cost, idle: IDLE_LOAD });
  const high = planAssignment(table, plan, expected.high);
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

/** Slowest drain of a backlog, as a share of the capacity, because demand does not stay above it forever. */
const SPARE_MIN = 0.05;

/**
 * Request seconds of waiting due to demand above the capacity, in a fluid model: until the end of the horizon, and
 * while the remaining backlog drains.
 */
export function overloadSeconds({ demand, horizonS }: ExpectedLoad, load: number): number {
  const total = demand.reduce((sum, one) => sum + one, 0);
  if (load <= 1) return 0;
  const left = (total - total / load) * horizonS;
  return (left * horizonS) / 2 + left ** 2 / (2 * SPARE_MIN * (total / load));
}
