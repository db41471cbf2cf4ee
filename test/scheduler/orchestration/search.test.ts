import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { deployAcross } from '../../../scheduler/orchestration/across.ts';
import { plansOf } from '../../../scheduler/orchestration/enumerate.ts';
import { evaluate } from '../../../scheduler/orchestration/evaluate.ts';
import { candidatePlans, fits, uniformPlans } from '../../../scheduler/orchestration/exhaustive.ts';
import { explain } from '../../../scheduler/orchestration/explain.ts';
import { flowGuided, leastLoaded } from '../../../scheduler/orchestration/flow-guided.ts';
import { place } from '../../../scheduler/orchestration/placement.ts';
import { gpusOfPlan } from '../../../scheduler/orchestration/types.ts';
import { SMALL, tableOf } from './support.ts';

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

  it('says which replicas are the bottleneck, and when the demand is too much', () => {
    const plan = [
      { shape: { tp: 4, pp: 1 }, replicas: 1 },
      { shape: { tp: 2, pp: 1 }, replicas: 2 },
    ];
    const of = (rate: number) =>
      explain(SMALL, evaluate(SMALL, plan, { demand: [rate, rate], high: [rate, rate], horizonS: 60 }));
    expect(of(4).join('\n')).toMatch(/bottleneck/);
    expect(of(4).at(-1)).toMatch(/could take [\d.]+ times/);
    expect(of(400).at(-1)).toMatch(/wait longer and longer/);
  });

  it('over several models and kinds of GPUs agrees with trying all where there is one of each', async () => {
    const demand = [6, 4];
    const eight = plansOf(
      SMALL.shapes.map(({ shape }) => shape),
      8,
    );
    const best = leastLoaded(SMALL.shapes, eight, demand);
    const found = await deployAcross([{ model: 'a', pool: 'h100', table: SMALL, demand }], [{ id: 'h100', gpus: 8 }]);
    expect(found.load).toBeLessThanOrEqual(best.load * 1.002);
    expect(found.load).toBeGreaterThanOrEqual(found.bound * 0.999);
  });

  it('gives each of two models its GPUs of two pools, and all demand its share', async () => {
    const demand = [3, 2];
    const choices = ['a', 'b'].flatMap((model) => ['x', 'y'].map((pool) => ({ model, pool, table: SMALL, demand })));
    const { plans, load } = await deployAcross(choices, [
      { id: 'x', gpus: 8 },
      { id: 'y', gpus: 4 },
    ]);
    for (const [pool, gpus] of [
      ['x', 8],
      ['y', 4],
    ] as const)
      expect(
        plans.filter((one) => one.pool === pool).reduce((sum, { plan }) => sum + gpusOfPlan(plan), 0),
      ).toBeLessThanOrEqual(gpus);
    for (const model of ['a', 'b'])
      for (const [j, wanted] of demand.entries()) {
        const served = plans
          .filter((one) => one.model === model)
          .flatMap(({ flow }) => flow)
          .reduce((sum, row) => sum + (row[j] ?? 0), 0);
        expect(served).toBeGreaterThanOrEqual(wanted * 0.999);
      }
    expect(load).toBeGreaterThan(0);
  });

  it('is refused where the model fits on none of the GPUs', async () => {
    await expect(
      deployAcross([{ model: 'a', pool: 'x', table: SMALL, demand: [1, 1] }], [{ id: 'x', gpus: 0 }]),
    ).rejects.toThrow('fits on none');
  });
});
