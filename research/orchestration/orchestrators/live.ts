import type { RateTable } from '../../../scheduler/assignment/rate-table.ts';
import { SchedulerError } from '../../../scheduler/errors.ts';
import { DemandForecaster, demandOf } from '../../../scheduler/follow/demand-forecaster.ts';
import type { Dispatch } from '../../../scheduler/follow/dispatch.ts';
import type { FollowProblem, ForecastDemand, Layout } from '../../../scheduler/follow/follow-problem.ts';
import { kindShares } from '../../../scheduler/follow/kind-shares.ts';
import { Decider } from '../../../scheduler/follow/switch-decision.ts';
import type { SimulatedEngineLimits } from '../../../scheduler/simulator/engine-limits.ts';
import { type DeploymentPlan, gpusOfShape, planText, sameShape } from '../deployment-plan.ts';
import { fits } from '../exhaustive.ts';
import type { OrchestrationDecision, Orchestrator, View } from '../orchestrator.ts';
import type { PlacedReplica } from '../placement.ts';

export interface LiveOptions {
  table: RateTable;
  limits: SimulatedEngineLimits;
  /** Layouts that the decider compares with the running one. */
  candidates: (problem: FollowProblem) => readonly Layout[];
  /** Seconds for which GPUs do not serve when their replica changes, from the plan of the transfer. */
  switchS: (running: readonly PlacedReplica[], to: DeploymentPlan) => number;
  /** Requests/s of each kind, for the first plan without a history. */
  initial: readonly number[];
}

/** Defaults of `otela-plan watch --forecast`. */
const HORIZON = 5;
const SEASON = 1_440;
const MARGIN = 0.1;
const CONFIRM = 2;
/** The decider expects the paper's seconds of a switch. All replicas change together, as in the simulated fleet. */
const SWITCH_S = 10;
const WAVE = 1_000;

const POOL = 'all';

/** The layout with the replicas of the plan: its options are the shapes of the table. */
const layoutIn = (table: RateTable, plan: DeploymentPlan): Layout =>
  table.shapes.map(({ shape }) => plan.find((group) => sameShape(group.shape, shape))?.replicas ?? 0);

/**
 * The planner of `otela-plan watch --forecast`: its forecaster, its decider with simulated layouts, and its shares of
 * kinds, for the requests of an experiment.
 */
export function live({ table, limits, candidates, switchS, initial }: LiveOptions): Orchestrator {
  const model = table.site.model.id;
  const kinds = table.kinds.map(({ name }) => name);
  const examples = table.kinds.map((kind) => kind.examples);
  const options = table.shapes.map(({ shape, rates, latencyS }) => ({
    place: { model, pool: POOL, tp: shape.tp, ...(shape.pp === 1 ? {} : { spread: shape }) },
    gpus: gpusOfShape(shape),
    rates,
    latencyS,
    engine: { step: table.step(shape), limits },
  }));
  const planOf = (layout: Layout): DeploymentPlan =>
    table.shapes.flatMap(({ shape }, i) => ((layout[i] ?? 0) > 0 ? [{ shape, replicas: layout[i] ?? 0 }] : []));
  const forecaster = new DemandForecaster(SEASON);
  const decider = new Decider({ margin: MARGIN, confirm: CONFIRM });

  const expected = ({ history }: View): ForecastDemand => {
    const end = history.counts[0]?.length ?? 0;
    if (end > 0) {
      const { forecast } = forecaster.expect(history, end, 0, HORIZON);
      return { ...demandOf(model, kinds, forecast, history.slotS), examples };
    }
    const steady = Array.from({ length: HORIZON }, () => initial);
    return { model, kinds, mean: steady, high: steady, examples };
  };

  const dispatchOf = (problem: FollowProblem, demand: ForecastDemand, layout: Layout): Dispatch => {
    const used = layout.flatMap((count, i) => (count > 0 ? [i] : []));
    if (used.length < 2) return { kind: 'least-loaded' };
    const serving = new Map(used.map((i) => [i, Array.from({ length: layout[i] ?? 0 }, (_, n) => `${i}.${n}`)]));
    const published = table.kinds.map(({ name, moments }) => ({
      name,
      input: moments.input.mean,
      output: moments.output.mean,
      share: 1 / kinds.length,
    }));
    const weights = kindShares(problem, demand, published, serving, 0)?.weights ?? [];
    const weightOf = (option: number, kind: string) =>
      weights.reduce((sum, one) => {
        const own = one.kind === kind && serving.get(option)?.includes(one.session ?? '') === true;
        return own ? sum + one.weight : sum;
      }, 0);
    return { kind: 'flow', flow: used.map((i) => kinds.map((kind) => weightOf(i, kind))) };
  };

  const decide = (view: View): OrchestrationDecision => {
    const demand = expected(view);
    const running = layoutIn(table, view.plan);
    const pools = [{ id: POOL, gpus: view.gpus, replicas: view.gpus }];
    const problem = {
      options,
      pools,
      models: [demand],
      running,
      slotS: view.history.slotS,
      switchS: SWITCH_S,
      wave: WAVE,
    };
    const layouts = candidates(problem).filter((layout) => fits(planOf(layout), table.site));
    const { layout, next, why } = decider.choose(problem, layouts);
    const chosen = [layout, next ?? [], layouts[0] ?? []].find((one) => one.some((count) => count > 0));
    if (chosen === undefined) throw new SchedulerError('infeasible', `no plan fits on ${view.gpus} GPUs`);
    const plan = planOf(chosen);
    const first = view.plan.length === 0;
    return {
      plan,
      dispatch: dispatchOf(problem, demand, chosen),
      darkS: first ? 0 : switchS(view.running, plan),
      running: 'migrate',
      note: first ? `the first plan: ${planText(plan)}` : why,
    };
  };
  return { name: 'live planner', decide };
}
