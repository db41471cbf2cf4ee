import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { gatewayPolicy } from '../../../research/regions/baselines/gateway-policies.ts';
import { latencyGreedy } from '../../../research/regions/baselines/latency-greedy.ts';
import { roundRobin } from '../../../research/regions/baselines/round-robin.ts';
import { sdib } from '../../../research/regions/baselines/sdib.ts';
import { skyLb } from '../../../research/regions/baselines/skylb.ts';
import { smoothed } from '../../../research/regions/macro/forecast.ts';
import { smoothingPlanner } from '../../../research/regions/macro/smoothing-planner.ts';
import { torta } from '../../../research/regions/micro/torta.ts';
import type { RegionPolicy } from '../../../research/regions/simulator/policy.ts';
import { simulateRegions } from '../../../research/regions/simulator/simulate.ts';
import { PoissonTasks, SLOT_S } from '../../../research/regions/simulator/workload.ts';
import { PREFIX_SAVING } from '../../../research/regions/world/tasks.ts';
import type { World } from '../../../research/regions/world/world.ts';
import { lineWorld, listed } from './support.ts';

const POLICIES: Record<string, (world: World) => RegionPolicy> = {
  'round-robin': roundRobin,
  skylb: skyLb,
  sdib,
  'latency-greedy': latencyGreedy,
  'gateway least-load': () => gatewayPolicy('least-load', 1),
  torta: (world) => torta({ macro: smoothingPlanner(), forecast: smoothed(world) }),
};

const run = (policy: string, seed: number, load = 0.5, slots = 20, regions = 4) => {
  const world = lineWorld(regions, seed);
  const source = new PoissonTasks(world, { slots, slotS: SLOT_S, seed, load });
  const make = POLICIES[policy];
  if (make === undefined) throw new Error(policy);
  return simulateRegions({ world, source, policy: make(world), slots, slotS: SLOT_S });
};

describe.each(Object.keys(POLICIES))('the simulator of regions under %s', (policy) => {
  it('ends every task that arrived as completed or dropped, whatever the load', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 1e6 }),
        fc.double({ min: 0.05, max: 3, noNaN: true }),
        async (seed, load) => {
          const found = await run(policy, seed, load, 6, 2);
          expect(found.completed + found.dropped).toBe(found.arrived);
          const parts = found.waitS + found.computeS + found.switchS + found.migrateS + found.networkS;
          expect(parts).toBeCloseTo(found.responseS.mean, 6);
          expect(found.waitS).toBeGreaterThan(-1e-9);
        },
      ),
      { numRuns: 20 },
    );
  });

  it('gives the same result for the same seed, and another for another', async () => {
    const [first, again, other] = [await run(policy, 7), await run(policy, 7), await run(policy, 8)];
    expect(again).toEqual(first);
    expect(other.responseS).not.toEqual(first.responseS);
  });
});

describe('one task', () => {
  const world = lineWorld(3);
  const task = { id: 0, origin: 2, model: 0, type: 0, workS: 10, arrivalS: 5, deadlineS: 60, prefix: -1 };
  const alone = (policy: RegionPolicy, tasks = [task]) =>
    simulateRegions({ world, source: listed(tasks, world), policy, slots: 4, slotS: SLOT_S });

  it('takes its work on an H100, and the network there and back', async () => {
    const found = await alone(latencyGreedy());
    const h100 = world.kinds.findIndex(({ gpu }) => gpu.class === 'H100');
    expect(found.computeS).toBeCloseTo(10 * (world.kinds[h100]?.factor[0] ?? 0), 6);
    expect(found.responseS.mean).toBeCloseTo(found.computeS + found.networkS, 4);
  });

  it('that begins like one before takes less', async () => {
    const prefixed = { ...task, prefix: 3 };
    const found = await alone(skyLb(), [prefixed, { ...prefixed, id: 1, arrivalS: 60, deadlineS: 120 }]);
    const [full, saved] = [10, 10 * (1 - PREFIX_SAVING)];
    expect(found.computeS / ((full + saved) / 2)).toBeCloseTo(world.kinds[0]?.factor[0] ?? 0, 1);
  });

  it('of a client that gives up is dropped', async () => {
    const found = await alone({ name: 'nowhere', choose: () => undefined });
    expect(found).toMatchObject({ arrived: 1, completed: 0, dropped: 1 });
  });
});

describe('energy', () => {
  it('of servers that do nothing is that of idle GPUs', async () => {
    const world = lineWorld(2);
    const found = await simulateRegions({
      world,
      source: listed([], world),
      policy: roundRobin(),
      slots: 80,
      slotS: SLOT_S,
    });
    const watts = world.servers.reduce((sum, { kind }) => sum + (world.kinds[kind]?.watts[2] ?? 0), 0);
    expect(found.energyKwh).toBeCloseTo(watts / 1000, 6);
  });

  it('of servers that may sleep is less', async () => {
    const world = lineWorld(2);
    const policy = torta({ macro: smoothingPlanner(), forecast: smoothed(world) });
    const found = await simulateRegions({ world, source: listed([], world), policy, slots: 80, slotS: SLOT_S });
    expect(found.awake).toBeLessThan(0.2);
  });
});
