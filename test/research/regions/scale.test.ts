/** A plan costs by regions and kinds, not by servers or requests. `bench:regions` measures the seconds. */
import { expect, it } from 'vitest';
import { DEFAULT_WEIGHTS, transportProblem } from '../../../research/regions/macro/problem.ts';
import { byCapacity } from '../../../research/regions/macro/smoothing-planner.ts';
import { SLOT_S } from '../../../research/regions/simulator/workload.ts';
import { largeWorld } from '../../../research/regions/world/large-world.ts';
import { TASK_TYPES } from '../../../research/regions/world/tasks.ts';
import { smoothTransport } from '../../../scheduler/regions/smooth-transport.ts';
import { catalogue } from './support.ts';

/** Entries that the solver reads: rounds times rows times columns; of a first plan, and of one for 5 % more demand. */
function reads(regions: number, servers: number, rate: number) {
  const world = largeWorld(regions, servers, catalogue);
  const count = (region: number, kind: number) =>
    world.servers.filter((one) => one.region === region && one.kind === kind).length;
  const places = world.topology.regions.map((_, region) => world.kinds.map((_, kind) => count(region, kind)));
  const plan = (growth: number, previous?: Float64Array, prices?: Float64Array) => {
    const problem = transportProblem(
      {
        world,
        demand: world.topology.regions.map((_, origin) =>
          // Every third region has half of its demand more.
          TASK_TYPES.map(
            () => (growth * rate * SLOT_S * (origin % 3 === 0 ? 1.5 : 0.75)) / regions / TASK_TYPES.length,
          ),
        ),
        servers: places,
        prices: world.topology.regions.map((_, region) => 0.05 + 0.01 * (region % 7)),
        backlogS: world.topology.regions.map(() => 0),
        use: world.topology.regions.map(() => 0.5),
        slotS: SLOT_S,
        previous: undefined,
      },
      DEFAULT_WEIGHTS,
    );
    const found = smoothTransport(problem, previous ?? byCapacity(problem), DEFAULT_WEIGHTS.smoothness, prices);
    return { ...found, reads: found.rounds * problem.rows * problem.columns };
  };
  const first = plan(1);
  return { first: first.reads, next: plan(1.05, first.shares, first.prices).reads };
}

it.each([300, 700, 1_000])('50 regions with 200 servers and %i requests/s take few rounds over the entries', (rate) => {
  // Above 600 requests/s the demand exceeds all capacity.
  const { first, next } = reads(50, 200, rate);
  expect(first).toBeLessThanOrEqual(150 * 150 * 250);
  expect(next).toBeLessThanOrEqual(25 * 150 * 250);
});

it('ten times the servers and requests take no more', () => {
  const [small, large] = [reads(20, 20, 20), reads(20, 200, 200)];
  expect(large.first).toBeLessThanOrEqual(2 * small.first);
});
