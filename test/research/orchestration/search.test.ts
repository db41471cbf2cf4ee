import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { gpusOfPlan } from '../../../research/orchestration/deployment-plan.ts';
import { plansOf } from '../../../research/orchestration/enumerate.ts';
import { candidatePlans, fits, uniformPlans } from '../../../research/orchestration/exhaustive.ts';
import { flowGuided, leastLoaded } from '../../../research/orchestration/flow-guided.ts';
import { place } from '../../../research/orchestration/placement.ts';
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

  it('counts as many replicas of one shape as nodes have room for', () => {
    const site = { ...table.site, gpus: 16, gpusPerNode: 8 };
    const of = (tp: number) => uniformPlans([{ tp, pp: 1 }], 16, site).map(([group]) => group?.replicas);
    expect([of(3), of(8), of(16)]).toEqual([[4], [2], []]);
  });
});
