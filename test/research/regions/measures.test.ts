import { describe, expect, it } from 'vitest';
import { claim, inPaperOrder } from '../../../research/papers/torta/claims.ts';
import { MISSES } from '../../../research/papers/torta/misses.ts';
import { crossing } from '../../../research/papers/torta/scenarios.ts';
import { activated } from '../../../research/regions/baselines/activated.ts';
import { latencyGreedy } from '../../../research/regions/baselines/latency-greedy.ts';
import { roundRobin } from '../../../research/regions/baselines/round-robin.ts';
import { sdib } from '../../../research/regions/baselines/sdib.ts';
import { skyLb } from '../../../research/regions/baselines/skylb.ts';
import type { RegionPolicy } from '../../../research/regions/simulator/policy.ts';
import { balanceOf } from '../../../research/regions/simulator/recorder.ts';
import { type Outage, simulateRegions } from '../../../research/regions/simulator/simulate.ts';
import { PoissonTasks, SLOT_S } from '../../../research/regions/simulator/workload.ts';
import { PHASES } from '../../../research/regions/world/hardware.ts';
import { pricesOf } from '../../../research/regions/world/price.ts';
import { loadTopology } from '../../../research/regions/world/topology.ts';
import type { World } from '../../../research/regions/world/world.ts';
import { lineWorld, listed } from './support.ts';

describe('balance by (11)', () => {
  const used = (...uses: number[]) => uses.map((use) => ({ busyS: 45 * use, activeS: 45 }));

  it('is 1 if all active servers work equally, and 1/(1+CV) otherwise', () => {
    expect(balanceOf(used(0.5, 0.5, 0.5))).toBe(1);
    expect(balanceOf(used(1, 0))).toBeCloseTo(1 / 2, 12);
    expect(balanceOf(used(0.2, 0.4, 0.6))).toBeCloseTo(1 / (1 + Math.sqrt(0.08 / 3) / 0.4), 12);
  });
  it('leaves out servers that sleep, and counts one that has just woken by its seconds', () => {
    expect(balanceOf([...used(0.5, 0.5), { busyS: 0, activeS: 0 }])).toBe(1);
    expect(balanceOf([...used(0.5, 0.5), { busyS: 0, activeS: 0.01 }])).toBeGreaterThan(0.97);
  });
});

const POLICIES: Record<string, (world: World) => RegionPolicy> = {
  'round-robin': roundRobin,
  skylb: skyLb,
  sdib,
  'latency-greedy': latencyGreedy,
};

function run(world: World, policy: RegionPolicy, slots = 40, load = 0.3, outages: Outage[] = []) {
  const source = new PoissonTasks(world, { slots, slotS: SLOT_S, seed: 3, load });
  return simulateRegions({ world, source, policy, slots, slotS: SLOT_S, outages });
}

describe.each(Object.keys(POLICIES))('%s with activation', (name) => {
  const make = POLICIES[name] ?? roundRobin;

  it('puts servers to sleep, costs less than without, and completes its tasks', async () => {
    const [plain, active] = [
      await run(lineWorld(3), make(lineWorld(3))),
      await run(lineWorld(3), activated(make(lineWorld(3)))),
    ];
    expect(plain.awake).toBe(1);
    expect(active.awake).toBeLessThan(0.8);
    expect(active.costUsd).toBeLessThan(plain.costUsd);
    expect(active.completed / active.arrived).toBeGreaterThan(0.99);
  });

  it('has its cost told apart by phase', async () => {
    const found = await run(lineWorld(3), activated(make(lineWorld(3))));
    const of = (phase: (typeof PHASES)[number]) => found.costByPhaseUsd[PHASES.indexOf(phase)] ?? 0;
    expect(found.costByPhaseUsd.reduce((sum, usd) => sum + usd, 0)).toBeCloseTo(found.costUsd, 9);
    expect(of('asleep')).toBeGreaterThan(0);
    expect(found.overheadUsd).toBeCloseTo(of('waking') + of('switching') + of('migrating'), 9);
    expect(found.overheadUsd).toBeGreaterThan(0);
  });
});

describe('a migration', () => {
  /** A T4 that works on a task of a model, and an idle 4090 of the same region that holds it. */
  const world = (): World => {
    const { kinds, ...rest } = lineWorld(1);
    const kind = (gpu: string) => kinds.findIndex((one) => one.gpu.class === gpu);
    const server = (gpu: string) => ({ region: 0, kind: kind(gpu), model: 4, coldStartS: 60 });
    return { ...rest, kinds, servers: [server('T4'), server('RTX4090')] };
  };
  const task = { id: 0, origin: 0, model: 4, type: 2, workS: 100, arrivalS: 5, deadlineS: 1_000, prefix: -1 };
  const moving = (afterS: number): RegionPolicy => ({
    name: 'moving',
    choose: (_job, cluster) => cluster.servers[0],
    slot(_start, cluster) {
      const [from, to] = cluster.servers;
      if (cluster.nowS === afterS && from !== undefined && to !== undefined) cluster.migrate(from, to);
    },
  });
  const simulated = (policy: RegionPolicy, outages: Outage[] = []) => {
    const own = world();
    return simulateRegions({ world: own, source: listed([task], own), policy, slots: 12, slotS: SLOT_S, outages });
  };

  it('occupies both servers for 30.7 s, keeps what was computed, and is part of the response', async () => {
    const [slow = 0, fast = 0] = world().servers.map(({ kind }) => world().kinds[kind]?.factor[2] ?? 0);
    const found = await simulated(moving(45));
    const before = 45 - 5 - 1e-3;
    const rest = 100 * fast * (1 - before / (100 * slow));
    expect(found.migrations).toBe(1);
    expect(found.migrateS).toBeCloseTo(30.7, 6);
    expect(found.computeS).toBeCloseTo(before + rest, 2);
    expect(found.responseS.mean).toBeCloseTo(before + 30.7 + rest, 1);
    const kwh = world().servers.reduce(
      (sum, { kind }) => sum + ((world().kinds[kind]?.watts[5] ?? 0) * 30.7) / 3.6e6,
      0,
    );
    expect(found.energyByPhaseKwh[5]).toBeCloseTo(kwh, 9);
  });

  it('to a server that fails meanwhile makes the task begin again', async () => {
    const found = await simulated(moving(45), [{ region: 0, fromS: 60, toS: 61 }]);
    expect(found).toMatchObject({ arrived: 1, completed: 1, migrations: 1, migrateS: 0 });
  });

  it('of a server without a task does nothing', async () => {
    expect((await simulated(moving(0))).migrations).toBe(0);
  });
});

describe('prices', () => {
  const of = (id: string, seed: number) => {
    const topology = loadTopology(id);
    const prices = pricesOf(topology, seed);
    // At the same local hour, so that only levels differ.
    return new Map(
      topology.regions.map(({ zone, at }, region) => [zone, prices.at(region, (12 - 6 - at[0] / 15) * 3600)]),
    );
  };
  it('differ within Poland by the operator of the network, and in Europe by zone', () => {
    expect(new Set(of('polska', 1).values()).size).toBe(5);
    const europe = of('cost266', 1);
    expect(new Set(europe.values()).size).toBe(europe.size);
  });
  it('of a cited zone are the same with each seed, and of others drawn', () => {
    expect(of('cost266', 1).get('SE')).toBe(of('cost266', 2).get('SE'));
    expect(of('cost266', 1).get('FR')).not.toBe(of('cost266', 2).get('FR'));
  });
});

describe("the paper's rows", () => {
  it('fail outside their band unless the miss is listed by name, with its reason', () => {
    const band = [0, 1] as const;
    expect(claim('Figure 9: a claim that no one lists', 'abilene', '%', 5, { band }).holds).toBe(false);
    for (const [name, { band: missed, reason }] of Object.entries(MISSES)) {
      expect(reason.length, name).toBeGreaterThan(20);
      const far = claim(name, '', '%', missed[1] + 1e6, { band });
      expect(far.holds, name).toBe(false);
    }
  });
  it("come in the paper's order", () => {
    const row = (name: string) => claim(name, '', '%', 1, { band: [0, 2] });
    const rows = [row('Figure 10: c'), row('Theorem 3: d'), row('Figure 2: b'), row('Table 1: a')];
    expect(inPaperOrder(rows).map(({ claim: text }) => text)).toEqual([
      'Table 1: a',
      'Figure 2: b',
      'Figure 10: c',
      'Theorem 3: d',
    ]);
    expect(() => row('Picture 3')).toThrow();
  });
  it('find the accuracy at which a forecast pays', () => {
    const points = [0.9, 0.5, 0.1].map((accuracy) => ({
      sigma: 0,
      accuracy,
      responseS: 20 - 10 * accuracy,
      costUsd: 0,
    }));
    expect(crossing(points, 17)).toBeCloseTo(0.3, 9);
    expect(crossing(points, 30)).toBe(0);
    expect(crossing(points, 5)).toBe(1);
  });
});
