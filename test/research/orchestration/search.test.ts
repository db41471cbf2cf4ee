import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { gpusOfPlan, planText } from '../../../research/orchestration/deployment-plan.ts';
import { plansOf } from '../../../research/orchestration/enumerate.ts';
import { allPlans, candidatePlans, fits, uniformPlans } from '../../../research/orchestration/exhaustive.ts';
import { flowGuided, leastLoaded } from '../../../research/orchestration/flow-guided.ts';
import { place } from '../../../research/orchestration/placement.ts';
import { planAssignment } from '../../../research/orchestration/plan-assignment.ts';
import { optionsOf } from '../../../research/papers/oserve/bound-runs.ts';
import { balance } from '../../../scheduler/assignment/demand-assignment.ts';
import { tableOf } from './support.ts';

describe('the search for a deployment', () => {
  const table = tableOf(12);
  const shapes = table.shapes.map(({ shape }) => shape);
  const all = plansOf(shapes, 12);

  it('by flow is within 6 % of trying all, for any mix', () => {
    fc.assert(
      fc.property(
        fc.double({ min: 0.1, max: 30, noNaN: true }),
        fc.double({ min: 0.1, max: 30, noNaN: true }),
        (a, b) => {
          const found = flowGuided(table, 12, [a, b], { seed: 1 });
          expect(found.load).toBeLessThanOrEqual(leastLoaded(table.shapes, all, [a, b]).load * 1.06);
          expect(gpusOfPlan(found.plan)).toBe(12);
        },
      ),
      { numRuns: 60, seed: 29 },
    );
  });

  it('fills as many GPUs as can be filled', () => {
    expect(plansOf([{ tp: 2, pp: 1 }], 7)).toEqual([[{ shape: { tp: 2, pp: 1 }, replicas: 3 }]]);
    expect(plansOf([{ tp: 8, pp: 1 }], 4)).toEqual([]);
  });

  it('weighs only what nodes have room for, and keeps a stage inside a node', () => {
    for (const plan of candidatePlans(table, 12)) {
      expect(fits(plan, table.site)).toBe(true);
      for (const { shape, gpus } of place(plan, [], table.site).replicas)
        for (let stage = 0; stage < shape.pp; stage++) {
          const nodes = gpus.slice(stage * shape.tp, (stage + 1) * shape.tp).map((gpu) => Math.floor(gpu / 8));
          expect(new Set(nodes).size).toBe(1);
        }
    }
  });

  it('keeps a pipeline that loses throughput only if it serves several kinds', () => {
    const four = tableOf(4);
    const pair = { shape: { tp: 2, pp: 1 }, rates: [10, 10], alone: [10, 10], latencyS: [1, 1] };
    const textsOf = (alone: number[]) => {
      const stages = { shape: { tp: 1, pp: 2 }, rates: alone.map((rate) => 0.7 * rate), alone, latencyS: [2, 2] };
      return candidatePlans({ site: four.site, shapes: [pair, stages] }, 4).map(planText);
    };
    expect(textsOf([12, 9])).toContain('1 × TP 2, 1 × TP 1 × PP 2');
    expect(textsOf([9, 9])).toEqual(['2 × TP 2']);
    // A bound must not depend on averages.
    expect(allPlans(four, 4)).toHaveLength(10);
    expect(optionsOf({ table: four, demand: [5, 5] })).toHaveLength(14);
  });

  it('assigns a pipeline the rates for one kind if it serves only one', () => {
    const four = tableOf(4);
    const [pair, stages] = [
      { tp: 2, pp: 1 },
      { tp: 1, pp: 2 },
    ];
    const added = (plan: readonly { shape: typeof pair; replicas: number }[], demand: number[]) =>
      balance({
        rates: plan.map(({ shape }) => four.of(shape).rates),
        replicas: plan.map(({ replicas }) => replicas),
        demand,
      });
    const apart = [
      { shape: pair, replicas: 1 },
      { shape: stages, replicas: 1 },
    ];
    const full = four.of(stages).rates[0] ?? 0;
    const demand = [full, four.of(pair).rates[1] ?? 0];
    expect(added(apart, demand).flow[1]?.[1]).toBe(0);
    expect(planAssignment(four, apart, demand).load).toBeLessThan(0.97 * added(apart, demand).load);
    const alike = [{ shape: stages, replicas: 2 }];
    expect(planAssignment(four, alike, demand)).toEqual(added(alike, demand));
  });

  it('counts as many replicas of one shape as nodes have room for', () => {
    const site = { ...table.site, gpus: 16, gpusPerNode: 8 };
    const of = (tp: number) => uniformPlans([{ tp, pp: 1 }], 16, site).map(([group]) => group?.replicas);
    expect([of(3), of(8), of(16)]).toEqual([[4], [2], []]);
  });
});
