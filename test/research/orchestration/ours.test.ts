import { describe, expect, it } from 'vitest';
import { type DeploymentPlan, planText, samePlan } from '../../../research/orchestration/deployment-plan.ts';
import { evaluate } from '../../../research/orchestration/evaluate.ts';
import type { RunningRequest, View } from '../../../research/orchestration/orchestrator.ts';
import { place } from '../../../research/orchestration/placement.ts';
import { forecastRequests, SHORT_REQUESTS, simulatePlan } from '../../../research/orchestration/rehearse.ts';
import { RateTable } from '../../../scheduler/assignment/rate-table.ts';
import { loadCatalogue } from '../../../scheduler/catalogue/catalogue.ts';
import type { Dispatch } from '../../../scheduler/follow/dispatch.ts';
import type { FittedForecaster, History } from '../../../scheduler/forecast/types.ts';
import { DEFAULT_LIMITS } from '../../../scheduler/simulator/engine-limits.ts';
import { fitKinds } from '../../../scheduler/workload/request-kinds.ts';
import { EMPTY, oursOf, SMALL, tableOf } from './support.ts';

const PAIRS: DeploymentPlan = [{ shape: { tp: 2, pp: 1 }, replicas: 4 }];
const WIDE: DeploymentPlan = [{ shape: { tp: 8, pp: 1 }, replicas: 1 }];
/** Averages rank it above PAIRS. With the bubbles of its pipelines it is slower. */
const STAGED: DeploymentPlan = [{ shape: { tp: 2, pp: 2 }, replicas: 2 }];

const viewOf = (of: Partial<View> = {}): View => ({
  slot: 0,
  nowS: 0,
  history: EMPTY,
  running: [],
  plan: [],
  gpus: 8,
  underWay: () => [],
  ...of,
});

/** Twenty minutes; minute `i` has `times(i)` of these requests/s. */
const pastOf = (perS: readonly number[], times: (minute: number) => number): History => ({
  ...EMPTY,
  counts: perS.map((rate) => Array.from({ length: 20 }, (_, minute) => rate * 60 * times(minute))),
});

describe('the first plan', () => {
  it('has room for bursts where the past had them', () => {
    const initial = [24, 1];
    const first = (times: (minute: number) => number) =>
      oursOf({ initial }).decide(viewOf({ history: pastOf(initial, times) }))?.plan ?? [];
    const steady = first(() => 1);
    const bursts = first((minute) => (minute % 5 === 4 ? 2.2 : 0.7));
    expect(planText(bursts)).not.toBe(planText(steady));
    // A plan with capacity for bursts is also chosen for a demand that is constantly that high.
    const high = oursOf({ initial: initial.map((one) => one * 1.6) }).decide(
      viewOf({ history: pastOf(initial, () => 1) }),
    );
    expect(planText(bursts)).toBe(planText(high?.plan ?? []));
  });

  it('is not one that falls behind slowly, whose queue a short rehearsal does not show', () => {
    const kinds = fitKinds(
      [...new Array(50).fill({ input: 150, output: 20 }), ...new Array(50).fill({ input: 200, output: 100 })],
      { most: 2, seed: 1 },
    );
    const [one, two] = [
      { tp: 1, pp: 1 },
      { tp: 2, pp: 1 },
    ];
    const table = new RateTable(SMALL.site, kinds, loadCatalogue().calibration, DEFAULT_LIMITS, [one, two]);
    const even: DeploymentPlan = [{ shape: two, replicas: 4 }];
    const uneven: DeploymentPlan = [
      { shape: two, replicas: 2 },
      { shape: one, replicas: 4 },
    ];
    const demand = [165, 72.6];
    const seconds = (plan: DeploymentPlan, most: number) => {
      const { flow } = evaluate(table, plan, { demand, high: demand, horizonS: 180 }).assignment;
      const requests = forecastRequests(table, demand, 180, 1, most);
      return simulatePlan(table, DEFAULT_LIMITS, { plan, dispatch: { kind: 'flow', flow } }, requests);
    };
    expect(seconds(uneven, SHORT_REQUESTS)).toBeLessThan(seconds(even, SHORT_REQUESTS));
    const history = pastOf(demand, () => 1);
    const first = oursOf({ table, initial: demand, plans: () => [even, uneven] }).decide(viewOf({ history }));
    expect(planText(first?.plan ?? [])).toBe(planText(even));
  });

  it('is the one that is rehearsed best in an overload, too: its queue counts once', () => {
    const initial = [42, 5];
    const between = initial.map((one) => one * 1.25);
    const seconds = (plan: DeploymentPlan) =>
      simulatePlan(
        SMALL,
        DEFAULT_LIMITS,
        { plan, dispatch: { kind: 'least-loaded' } },
        forecastRequests(SMALL, between, 180, 1, 1e5),
      );
    const load = (plan: DeploymentPlan) =>
      evaluate(SMALL, plan, { demand: between, high: between, horizonS: 180 }).load;
    expect(seconds(PAIRS)).toBeLessThan(seconds(STAGED));
    // By averages the order is reversed.
    expect(load(STAGED)).toBeGreaterThan(1);
    expect(load(PAIRS)).toBeGreaterThan(load(STAGED));
    expect(planText(oursOf({ initial, plans: () => [STAGED, PAIRS] }).decide(viewOf())?.plan ?? [])).toBe(
      planText(PAIRS),
    );
  });

  it('is found behind one that averages rank higher and that comes up several times', () => {
    const plans = () => [...new Array<DeploymentPlan>(6).fill(STAGED), PAIRS];
    expect(planText(oursOf({ initial: [42, 5], plans }).decide(viewOf())?.plan ?? [])).toBe(planText(PAIRS));
  });

  it('is rehearsed no worse than large pools, which averages rank below several smaller ones', () => {
    const initial = [10.8, 16.2];
    const pools: DeploymentPlan = [{ shape: { tp: 4, pp: 1 }, replicas: 2 }];
    const requests = forecastRequests(
      SMALL,
      initial.map((one) => one * 1.25),
      180,
      1,
      1e5,
    );
    const seconds = (plan: DeploymentPlan, dispatch: Dispatch) =>
      simulatePlan(SMALL, DEFAULT_LIMITS, { plan, dispatch }, requests);
    const { plan, dispatch } = oursOf({ initial }).decide(viewOf()) ?? {};
    if (plan === undefined || dispatch === undefined) throw new Error('no plan');
    expect(seconds(plan, dispatch)).toBeLessThanOrEqual(seconds(pools, { kind: 'least-loaded' }));
  });

  it('for more GPUs than are enumerated is no worse than two halves', () => {
    const past = (perS: readonly number[]) => pastOf(perS, () => 1);
    const plan = (gpus: number, initial: readonly number[]) =>
      oursOf({ table: tableOf(gpus), initial }).decide(viewOf({ gpus, history: past(initial) }))?.plan ?? [];
    const half = plan(16, [20, 15]).map(({ shape, replicas }) => ({ shape, replicas: 2 * replicas }));
    expect(planText(plan(32, [40, 30]))).toBe(planText(half));
  });
});

describe('a change', () => {
  /** In each slot the forecast is for the plan that `turns` names. */
  const decisions = (turns: readonly (readonly [number, number])[]) => {
    const forecaster: FittedForecaster = {
      name: 'by turns',
      forecast: ({ counts }, horizon) => {
        const of = turns[(counts[0]?.length ?? 0) - 1] ?? [1, 1];
        const mean = of.map((rate) => new Array<number>(horizon).fill(rate * 60));
        return { mean, low: mean, high: mean, notes: [] };
      },
    };
    const orchestrator = oursOf({
      forecaster,
      confirm: 2,
      margin: 0,
      plans: () => [STAGED, WIDE, PAIRS],
      switchS: () => 0,
    });
    const running = place(STAGED, [], SMALL.site).replicas;
    return turns.map((_, slot) => {
      const history = { ...EMPTY, counts: EMPTY.names.map(() => new Array<number>(slot + 1).fill(60)) };
      return orchestrator.decide(viewOf({ slot, nowS: slot * 60, history, running, plan: STAGED }))?.plan ?? [];
    });
  };
  const QUIET = [2, 2] as const;
  const BUSY = [40, 1] as const;

  it('is made when two slots in a row want the same plan', () => {
    expect(samePlan(decisions([QUIET, QUIET])[1] ?? [], WIDE)).toBe(true);
    expect(samePlan(decisions([BUSY, BUSY])[1] ?? [], PAIRS)).toBe(true);
  });

  it('is not made when each slot wants another plan', () => {
    const plans = decisions([QUIET, BUSY, QUIET, BUSY]);
    expect(plans.map(planText)).toEqual(plans.map(() => planText(STAGED)));
  });

  it('that darkens all GPUs waits until the queue of a burst is gone', () => {
    const forecaster: FittedForecaster = {
      name: 'steady',
      forecast: (_history, horizon) => {
        const mean = [20, 4].map((rate) => new Array<number>(horizon).fill(rate * 60));
        return { mean, low: mean, high: mean, notes: [] };
      },
    };
    const history = { ...EMPTY, counts: EMPTY.names.map(() => [60]) };
    const running = place(STAGED, [], SMALL.site).replicas;
    const queue = Array.from({ length: 300 }, (_, i): RunningRequest => {
      return { kind: i % 2, ageS: 20, tokens: 200, answered: 0, computed: false };
    });
    const plan = (underWay: readonly RunningRequest[]) =>
      oursOf({ forecaster, plans: () => [STAGED, PAIRS], switchS: () => 8 }).decide(
        viewOf({ slot: 1, nowS: 60, history, running, plan: STAGED, underWay: () => underWay }),
      )?.plan ?? [];
    expect(planText(plan([]))).toBe(planText(PAIRS));
    expect(planText(plan(queue))).toBe(planText(STAGED));
  });
});
