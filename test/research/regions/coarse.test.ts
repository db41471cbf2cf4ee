/** Plans of many regions in groups. `bench:regions` measures their seconds and what they lose in the simulator. */
import { describe, expect, it } from 'vitest';
import { coarsePlanner, groupRegions } from '../../../research/regions/macro/coarse-planner.ts';
import type { MacroInput } from '../../../research/regions/macro/problem.ts';
import { smoothingPlanner } from '../../../research/regions/macro/smoothing-planner.ts';
import { SLOT_S } from '../../../research/regions/simulator/workload.ts';
import { TASK_TYPES } from '../../../research/regions/world/tasks.ts';
import { lineWorld } from './support.ts';

function inputOf(regions: number, growth = 1, dead = -1): MacroInput {
  const world = lineWorld(regions);
  const counts = world.topology.regions.map(() => world.kinds.map(() => 0));
  for (const { region, kind } of world.servers) {
    const line = counts[region];
    if (line !== undefined && region !== dead) line[kind] = (line[kind] ?? 0) + 1;
  }
  return {
    world,
    demand: counts.map((_, origin) => TASK_TYPES.map(() => growth * (origin % 3 === 0 ? 12 : 4))),
    servers: counts,
    prices: counts.map((_, region) => 0.05 + 0.02 * (region % 4)),
    backlogS: counts.map(() => 0),
    use: counts.map(() => 0.5),
    slotS: SLOT_S,
    previous: undefined,
  };
}

describe('groups of regions', () => {
  it('are of near regions, and no more than asked', () => {
    const { latencyS } = lineWorld(12).topology;
    const group = groupRegions(latencyS, 4);
    expect(new Set(group).size).toBe(4);
    // On a line each group is an interval.
    for (let at = 1; at < group.length - 1; at++)
      if (group[at - 1] === group[at + 1]) expect(group[at]).toBe(group[at - 1]);
    expect(new Set(groupRegions(latencyS, 100)).size).toBe(12);
  });
});

describe('a plan in groups', () => {
  it('is that of one QP if each region is a group', async () => {
    const [coarse, exact] = [coarsePlanner(6), smoothingPlanner()];
    for (const growth of [1, 1.3]) {
      const [ours, theirs] = [await coarse.plan(inputOf(6, growth)), await exact.plan(inputOf(6, growth))];
      for (const [at, share] of ours.shares.entries()) expect(share).toBeCloseTo(theirs.shares[at] ?? 0, 2);
    }
  });

  it('gives every origin and type all of its tasks, none to a region without servers, slot after slot', async () => {
    const planner = coarsePlanner(3);
    for (const [growth, dead] of [
      [1, -1],
      [1.2, 4],
      [30, 4],
    ] as const) {
      const { shares } = await planner.plan(inputOf(9, growth, dead));
      for (let row = 0; row < 27; row++) {
        const own = shares.subarray(row * 9, row * 9 + 9);
        expect(own.reduce((sum, share) => sum + share, 0)).toBeCloseTo(1, 6);
        if (dead >= 0) expect(own[dead]).toBeLessThan(1e-9);
      }
    }
  });
});
