import { describe, expect, it } from 'vitest';
import { latencyGreedy } from '../../../research/regions/baselines/latency-greedy.ts';
import { sdib } from '../../../research/regions/baselines/sdib.ts';
import { skyLb } from '../../../research/regions/baselines/skylb.ts';
import { type DemandForecast, degraded, oracle, smoothed } from '../../../research/regions/macro/forecast.ts';
import type { MacroInput, MacroPlanner } from '../../../research/regions/macro/problem.ts';
import { smoothingPlanner } from '../../../research/regions/macro/smoothing-planner.ts';
import { torta } from '../../../research/regions/micro/torta.ts';
import type { RegionPolicy } from '../../../research/regions/simulator/policy.ts';
import { type Outage, simulateRegions } from '../../../research/regions/simulator/simulate.ts';
import { PoissonTasks, SLOT_S, type TaskSource } from '../../../research/regions/simulator/workload.ts';
import { type Prices, plannablePrices } from '../../../research/regions/world/price.ts';
import type { World } from '../../../research/regions/world/world.ts';
import { lineWorld } from './support.ts';

interface Case {
  world?: World;
  slots?: number;
  load?: number;
  outages?: Outage[];
  forecast?: (source: TaskSource, world: World) => DemandForecast;
  policy?: (world: World) => RegionPolicy;
}

function run({ world = lineWorld(4), slots = 40, load = 0.4, outages = [], forecast, policy }: Case) {
  const source = new PoissonTasks(world, { slots, slotS: SLOT_S, seed: 5, load });
  const own =
    policy?.(world) ?? torta({ macro: smoothingPlanner(), forecast: forecast?.(source, world) ?? smoothed(world) });
  return simulateRegions({ world, source, policy: own, slots, slotS: SLOT_S, outages });
}

describe('a region that dies and returns', () => {
  const outages = [{ region: 1, fromS: 10 * SLOT_S + 3, toS: 20 * SLOT_S }];

  it.each([
    ['torta', undefined],
    ['skylb', skyLb],
    ['sdib', sdib],
    ['latency-greedy', latencyGreedy],
  ])('loses no task under %s', async (_, policy) => {
    const found = await run({ outages, ...(policy === undefined ? {} : { policy }) });
    expect(found.retries).toBeGreaterThan(0);
    expect(found.completed).toBe(found.arrived);
  });

  it('gets nothing while it is gone, and its work is spread by the plan, not all to the nearest', async () => {
    const inner = torta({ macro: smoothingPlanner(), forecast: smoothed(lineWorld(6)) });
    const shares = new Map<number, number>();
    let [there, from] = [0, 0];
    const policy: RegionPolicy = {
      name: 'watched',
      slot: (start, cluster) => inner.slot?.(start, cluster),
      choose(job, cluster) {
        const chosen = inner.choose(job, cluster);
        if (!cluster.alive[1] && chosen !== undefined) {
          if (chosen.region === 1) there++;
          if (job.task.origin === 1) {
            from++;
            shares.set(chosen.region, (shares.get(chosen.region) ?? 0) + 1);
          }
        }
        return chosen;
      },
    };
    await run({ world: lineWorld(6), outages: [{ region: 1, fromS: 903, toS: 1_500 }], policy: () => policy });
    expect(there).toBe(0);
    expect(from).toBeGreaterThan(20);
    expect(Math.max(...shares.values()) / from).toBeLessThan(0.9);
    expect(shares.size).toBeGreaterThan(1);
  });

  it('of which there is only one, ends its tasks by their deadlines', async () => {
    const found = await run({ world: lineWorld(1), outages: [{ region: 0, fromS: 300, toS: 5_000 }] });
    expect(found.completed + found.dropped).toBe(found.arrived);
    expect(found.dropped).toBeGreaterThan(0);
  });
});

describe('prices', () => {
  const feed = (values: number[], publishedS = 0): Prices => ({
    at: (region) => values[region] ?? Number.NaN,
    publishedS: () => publishedS,
  });

  it('that are missing count as the median of the others', () => {
    expect(plannablePrices(feed([0.1, Number.NaN, 0.3]), 3, 60)).toEqual([0.1, 0.3, 0.3]);
    expect(plannablePrices(feed([]), 3, 60)).toEqual([0, 0, 0]);
  });
  it('that are negative count as nothing', () => {
    expect(plannablePrices(feed([-0.5, 0.1]), 2, 60)).toEqual([0, 0.1]);
  });
  it('that are stale count as missing', () => {
    expect(plannablePrices(feed([0.1, 0.2]), 2, 3 * 3600)).toEqual([0, 0]);
  });

  it.each([
    ['missing', feed([])],
    ['negative', feed([-1, -1, -1, -1])],
    ['stale', feed([0.1, 0.2, 0.3, 0.4], -1e6)],
    ['absurd', feed([1e6, 0, 1e6, 0])],
  ])('that are %s change no answer into a loss, and keep no server awake for its own sake', async (_, prices) => {
    const found = await run({ world: { ...lineWorld(4), prices } });
    expect(found.completed).toBe(found.arrived);
    expect(found.awake).toBeLessThan(0.8);
  });
});

describe('a forecast', () => {
  const wrong: [string, (source: TaskSource) => DemandForecast][] = [
    ['ten times too high', (source) => oracle(source, 10)],
    ['ten times too low', (source) => oracle(source, 0.1)],
    ['of noise', (source) => degraded(oracle(source), 2.5, 1)],
    [
      'of no number',
      () => ({ name: 'NaN', observe() {}, expected: () => [[Number.NaN], [Number.NaN], [Number.NaN], [Number.NaN]] }),
    ],
  ];
  it.each(wrong)('that is %s costs time, not tasks', async (_, forecast) => {
    const right = await run({ forecast: (source) => oracle(source) });
    const found = await run({ forecast });
    expect(found.completed / found.arrived).toBeGreaterThan(0.999);
    // A plan for ten times the demand uses all capacity, slow GPUs included.
    expect(found.responseS.mean).toBeLessThan(1.8 * right.responseS.mean);
  });
});

describe('two gateways that plan for themselves', () => {
  /** Each sees its own half of the demand and the backlog of both. Returns how much shares moved in each slot. */
  function movements(planners: readonly MacroPlanner[], load: number): number[] {
    const world = lineWorld(3);
    const kinds = world.kinds.length;
    const servers = [0, 1, 2].map((region) =>
      Array.from(
        { length: kinds },
        (_, kind) => world.servers.filter((one) => one.region === region && one.kind === kind).length,
      ),
    );
    const backlogS = [0, 0, 0];
    const before: Float64Array[] = [];
    const moved: number[] = [];
    for (let slot = 0; slot < 120; slot++) {
      let sum = 0;
      const inflow = [0, 0, 0];
      for (const [p, planner] of planners.entries()) {
        // They disagree about the demand: one sees a tenth more, the other a tenth less.
        const demand = [0, 1, 2].map(() => [20, 8, 12].map((count) => count * load * (p === 0 ? 1.1 : 0.9)));
        const input: MacroInput = {
          world,
          demand,
          servers,
          prices: [0.1, 0.12, 0.09],
          backlogS: [...backlogS],
          use: [0, 0, 0],
          slotS: SLOT_S,
          previous: undefined,
        };
        const plan = planner.plan(input);
        if (plan instanceof Promise) throw new Error('not expected to wait');
        plan.shares.forEach((share, at) => {
          sum += Math.abs(share - (before[p]?.[at] ?? share));
          const row = Math.floor(at / 3);
          inflow[at % 3] = (inflow[at % 3] ?? 0) + share * (demand[Math.floor(row / 3)]?.[row % 3] ?? 0) * 12;
        });
        before[p] = plan.shares;
      }
      for (const region of [0, 1, 2]) {
        const room = (servers[region] ?? []).reduce((total, count) => total + count, 0) * SLOT_S * 0.6;
        backlogS[region] = Math.max(0, (backlogS[region] ?? 0) + (inflow[region] ?? 0) - room);
      }
      moved.push(sum);
    }
    return moved;
  }

  it.each([0.3, 0.6, 0.9])('come to rest at load %f: shares do not oscillate', (load) => {
    const moved = movements([smoothingPlanner(), smoothingPlanner()], load);
    const late = moved.slice(100);
    // Of 18 rows: less than a hundredth of each moves in a slot.
    expect(Math.max(...late)).toBeLessThan(0.18);
  });
});

describe('capacity', () => {
  it('of one region only is used', async () => {
    const found = await run({ world: lineWorld(1) });
    expect(found.completed).toBe(found.arrived);
  });

  it('of nothing at all drops every task at its deadline', async () => {
    const found = await run({ world: { ...lineWorld(2), servers: [] }, slots: 6, load: 0.4 });
    expect(found.completed).toBe(0);
    expect(found.dropped).toBe(found.arrived);
  });

  it('that a region lacks is found in others', async () => {
    const world = lineWorld(3);
    const found = await run({
      world: { ...world, servers: world.servers.filter(({ region }) => region !== 1) },
      load: 0.4,
    });
    expect(found.completed).toBe(found.arrived);
  });

  it('that is far too small keeps what it can do, and serves no task that nobody waits for', async () => {
    const found = await run({ world: lineWorld(2), load: 3, slots: 20 });
    expect(found.dropped).toBeGreaterThan(0);
    expect(found.completed).toBeGreaterThan(found.arrived * 0.2);
    expect(found.responseS.p99).toBeLessThan(200);
  });
});
