/** From a demand and the available nodes to a plan: its shares and reasons, and its message if there is no plan. */
import { describe, expect, it } from 'vitest';
import { planByMilp } from '../../scheduler/planner/milp-planner.ts';
import { predict } from '../../scheduler/planner/predict-plan.ts';
import type { PlanOptions, Pool } from '../../scheduler/solver/planning-problem.ts';
import { catalogue, demand, planOptions, pool } from './support/small.ts';

const POOLS = [pool('a', 'A100-80-SXM', 1, 4), pool('h', 'H100-SXM', 1, 4)];

describe('a plan', () => {
  const context = (options: PlanOptions) => ({ catalogue, options });

  it('gives shares that add up, within the pools, with reasons', async () => {
    const demands = [
      demand('Llama-3.1-8B-Instruct', 20),
      demand('Llama-3.3-70B-Instruct', 2),
      demand('Qwen3-30B-A3B', 5),
    ];
    const pools = [pool('a', 'A100-80-SXM', 3, 4), pool('g', 'GH200-96', 2, 4)];
    const found = await planByMilp(pools, demands, [], context(planOptions()));
    expect(found.infeasible).toBeUndefined();
    for (const { model } of demands) {
      const shares = found.placements.filter((one) => one.model === model.id);
      expect(shares.reduce((sum, { share }) => sum + share, 0)).toBeCloseTo(1, 6);
    }
    for (const { why } of found.models)
      expect(why.join(' ')).toMatch(/serves at most .* requests\/s .* concurrent requests/);
    expect(found.models.map(({ why }) => why.join(' ')).join(' ')).toMatch(/next best/);
    expect(found.pools.map(({ oneMore }) => oneMore).join(' ')).toMatch(/mean latency|nothing/);
  });

  it('leaves what runs alone, unless told otherwise', async () => {
    const pools = [pool('a', 'A100-80-SXM', 1, 4)];
    const running = [{ model: 'meta-llama/Llama-2-13b-hf', pool: 'a', tp: 1, replicas: 3 }];
    const demands = [demand('Llama-2-13b-hf', 0.1), demand('Llama-3.1-8B-Instruct', 10)];
    const replicas = async (reclaim: boolean) =>
      (await planByMilp(pools, demands, running, context(planOptions({ reclaim, objective: 'throughput' })))).placements
        .filter(({ model, tp }) => model.endsWith('13b-hf') && tp === 1)
        .reduce((sum, one) => sum + one.replicas, 0);
    expect(await replicas(false)).toBeGreaterThanOrEqual(3);
    expect(await replicas(true)).toBeLessThan(3);
  });

  it('does not take a GPU without a known price for free', async () => {
    const pools = [pool('b', 'B200', 1, 8)];
    const found = planByMilp(pools, [demand('Llama-2-13b-hf', 1)], [], context(planOptions({ objective: 'cost' })));
    await expect(found).rejects.toThrow(/price of B200 is unknown.*usd_hour/);
  });

  it('keeps a budget', async () => {
    const demands = [demand('Llama-3.1-8B-Instruct', 5)];
    const found = await planByMilp([pool('a', 'A100-80-SXM', 4, 4)], demands, [], context(planOptions({ budget: 4 })));
    expect(found.usdPerHour).toBeLessThanOrEqual(4);
    expect(found.placements.length).toBeGreaterThan(0);
  });

  it.each(['gpus', 'cost', 'latency'] as const)(
    'names a budget that is too small as the reason, and one that is enough (%s)',
    async (objective) => {
      const demands = [demand('Llama-3.1-8B-Instruct', 100)];
      const asked = (budget: number) =>
        planByMilp([pool('a', 'A100-80-SXM', 4, 4)], demands, [], context(planOptions({ objective, budget })));
      const { infeasible, usdPerHour } = await asked(3);
      expect(usdPerHour).toBeLessThanOrEqual(3);
      expect(infeasible).toMatch(/3 USD per hour: the budget is too small/);
      const enough = Number(/([\d.]+) USD per hour would be enough/.exec(infeasible ?? '')?.[1]);
      expect((await asked(enough * 1.001)).infeasible).toBeUndefined();
    },
  );

  it.each(['latency', 'cost', 'gpus'] as const)(
    'gives every model a replica when not all can be served, the worst served the most (%s)',
    async (objective) => {
      const demands = [demand('Qwen3-8B', 60, 300, 200), demand('Llama-3.1-8B-Instruct', 1, 300, 200)];
      const found = await planByMilp(
        [pool('a', 'A100-80-SXM', 3, 1)],
        demands,
        [],
        context(planOptions({ objective })),
      );
      expect(found.placements.map(({ replicas }) => replicas)).toEqual([2, 1]);
      expect(found.infeasible).toMatch(
        /Every model has a replica, and the worst served model gets \d\d % of its requests/,
      );
    },
  );

  it('gives idle models one replica each on one GPU, and none without requests', async () => {
    const quiet = [demand('Qwen3-8B', 1), demand('Llama-3.1-8B-Instruct', 1)];
    const both = await planByMilp(
      [pool('a', 'A100-80-SXM', 16, 4)],
      quiet,
      [],
      context(planOptions({ objective: 'gpus' })),
    );
    expect(both.placements.map(({ replicas, tp }) => [replicas, tp])).toEqual([
      [1, 1],
      [1, 1],
    ]);
    const least = [demand('Qwen3-8B', 0.1)];
    for (const objective of ['gpus', 'latency', 'cost'] as const) {
      const one = await planByMilp([pool('a', 'A100-80-SXM', 16, 4)], least, [], context(planOptions({ objective })));
      for (const { rate } of one.placements) expect(rate).toBeGreaterThan(0.01);
      if (objective !== 'latency') expect(one.placements).toMatchObject([{ replicas: 1, tp: 1 }]);
    }
  });

  it.each([0.02, 0.1, 0.4])('plans the latency of a replica at %d of its load as it is simulated', async (load) => {
    const pools = [pool('a', 'A100-80-SXM', 1, 1)];
    const of = (rate: number) => ({ ...demand('Llama-2-13b-hf', rate, 700, 200), tp: [1] });
    const most = (await planByMilp(pools, [of(0.01)], [], context(planOptions({ objective: 'latency' }))))
      .placements[0];
    const demands = [of(load * (most?.capacity ?? 0))];
    const options = planOptions({ objective: 'latency' });
    const found = await planByMilp(pools, demands, [], context(options));
    const { meanS } = predict(found, pools, demands, options, 4000 / (demands[0]?.rate ?? 1));
    expect(found.models[0]?.latencyS).toBeGreaterThan(0.93 * meanS);
    expect(found.models[0]?.latencyS).toBeLessThan(1.07 * meanS);
  });

  it('never puts an always-on model on volatile nodes alone, and tells how available it is', async () => {
    const pools: Pool[] = [
      { ...pool('v', 'H100-SXM', 4, 4), tier: 'volatile', availability: 0.8 },
      { ...pool('s', 'A100-80-SXM', 1, 1), tier: 'stable', availability: 0.99 },
    ];
    const always = { ...demand('Qwen3-8B', 60), alwaysOn: true };
    const found = await planByMilp(pools, [always], [], context(planOptions({ objective: 'gpus' })));
    expect(found.placements.map((one) => one.pool)).toContain('s');
    expect(found.models[0]?.availability).toBeGreaterThanOrEqual(0.99);
    const volatile = pools.slice(0, 1);
    const anywhere = await planByMilp(
      volatile,
      [{ ...always, alwaysOn: false }],
      [],
      context(planOptions({ objective: 'gpus' })),
    );
    expect(anywhere.models[0]?.availability).toBeCloseTo(0.8);
    const homeless = planByMilp(volatile, [always], [], context(planOptions()));
    await expect(homeless).rejects.toThrow(/Qwen3-8B is always on, but does not fit on a stable node/);
  });

  it('takes measured capacities before simulated ones', async () => {
    const demands = [demand('Llama-3.1-8B-Instruct', 5)];
    const measured = [{ model: 'meta-llama/Llama-3.1-8B-Instruct', gpu: 'A100-80-SXM', tp: 1, rate: 2.5 }];
    const only = { ...planOptions({ measured, objective: 'throughput' }) };
    const found = await planByMilp(
      [pool('a', 'A100-80-SXM', 1, 2)],
      demands.map((one) => ({ ...one, tp: [1] })),
      [],
      context(only),
    );
    expect(found.placements).toMatchObject([{ tp: 1, replicas: 2, capacity: 5, source: 'measured' }]);
  });

  it('says which constraint binds and what would help when the demand cannot be served', async () => {
    const found = await planByMilp(
      [pool('a', 'A100-80-SXM', 1, 2)],
      [demand('Llama-2-13b-hf', 500)],
      [],
      context(planOptions()),
    );
    expect(found.infeasible).toMatch(/all GPUs of a are in use/);
    expect(found.infeasible).toMatch(/It would fit at \d+ % of all requests, or with about \d+ more A100-80-SXM/);
    expect(found.placements.length).toBeGreaterThan(0);
  });

  it('says which latency could be kept when the one that was asked for cannot', async () => {
    const asked = (latencyS: number) =>
      planByMilp(
        [pool('a', 'A100-80-SXM', 1, 4)],
        [demand('Llama-2-13b-hf', 1)],
        [],
        context(planOptions({ objective: 'cost', latencyS })),
      );
    const { infeasible } = await asked(0.01);
    expect(infeasible).toMatch(/latency targets\. --latency [\d.]+ could be met/);
    const least = Number(/--latency (\d+\.?\d*)/.exec(infeasible ?? '')?.[1]);
    expect((await asked(least * 1.1)).infeasible).toBeUndefined();
  });

  it('says what a model that fits nowhere would need', async () => {
    const huge = planByMilp([pool('t', 'T4', 4, 4)], [demand('Llama-3.3-70B-Instruct', 1)], [], context(planOptions()));
    await expect(huge).rejects.toThrow(/there is not enough GPU memory.*smallest relaxation: weights in int4/s);
    const tall = planByMilp(
      [pool('a', 'A100-80-SXM', 4, 8)],
      [{ ...demand('llama-30b', 1), tp: [8] }],
      [],
      context(planOptions()),
    );
    await expect(tall).rejects.toThrow(/8 does not divide the 52 attention heads/);
  });

  it.each([Number.NaN, -1, Number.POSITIVE_INFINITY])('refuses a rate of %d', async (rate) => {
    await expect(
      planByMilp(POOLS, [{ ...demand('Llama-2-13b-hf', 1), rate }], [], context(planOptions())),
    ).rejects.toThrow(/rate/);
  });

  it('refuses an empty inventory, an empty workload, and one model twice', async () => {
    const one = demand('Llama-2-13b-hf', 1);
    await expect(planByMilp([], [one], [], context(planOptions()))).rejects.toThrow(/no GPU/);
    await expect(planByMilp(POOLS, [], [], context(planOptions()))).rejects.toThrow(/no model/);
    await expect(planByMilp(POOLS, [one, one], [], context(planOptions()))).rejects.toThrow(/twice/);
    await expect(planByMilp(POOLS, [{ ...one, rate: 0 }], [], context(planOptions()))).rejects.toThrow(
      /every rate is 0/,
    );
  });
});
