/** From a demand and what there is to a plan: its shares and reasons, and what it says where there is none. */
import { describe, expect, it } from 'vitest';
import { plan } from '../../scheduler/planner/milp.ts';
import type { PlanOptions } from '../../scheduler/solver/problem.ts';
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
    const found = await plan(pools, demands, [], context(planOptions()));
    expect(found.infeasible).toBeUndefined();
    for (const { model } of demands) {
      const shares = found.placements.filter((one) => one.model === model.id);
      expect(shares.reduce((sum, { share }) => sum + share, 0)).toBeCloseTo(1, 6);
    }
    for (const { why } of found.models) expect(why.join(' ')).toMatch(/can do .* requests\/s at most .* at a time/);
    expect(found.models.map(({ why }) => why.join(' ')).join(' ')).toMatch(/next best/);
    expect(found.pools.map(({ oneMore }) => oneMore).join(' ')).toMatch(/mean latency|nothing/);
  });

  it('leaves what runs alone, unless told otherwise', async () => {
    const pools = [pool('a', 'A100-80-SXM', 1, 4)];
    const running = [{ model: 'meta-llama/Llama-2-13b-hf', pool: 'a', tp: 1, replicas: 3 }];
    const demands = [demand('Llama-2-13b-hf', 0.1), demand('Llama-3.1-8B-Instruct', 10)];
    const replicas = async (reclaim: boolean) =>
      (await plan(pools, demands, running, context(planOptions({ reclaim, objective: 'throughput' })))).placements
        .filter(({ model, tp }) => model.endsWith('13b-hf') && tp === 1)
        .reduce((sum, one) => sum + one.replicas, 0);
    expect(await replicas(false)).toBeGreaterThanOrEqual(3);
    expect(await replicas(true)).toBeLessThan(3);
  });

  it('does not take a GPU without a known price for free', async () => {
    const pools = [pool('b', 'B200', 1, 8)];
    const found = plan(pools, [demand('Llama-2-13b-hf', 1)], [], context(planOptions({ objective: 'cost' })));
    await expect(found).rejects.toThrow(/price of B200 is not known.*usd_hour/);
  });

  it('keeps a budget', async () => {
    const demands = [demand('Llama-3.1-8B-Instruct', 5)];
    const found = await plan([pool('a', 'A100-80-SXM', 4, 4)], demands, [], context(planOptions({ budget: 4 })));
    expect(found.usdPerHour).toBeLessThanOrEqual(4);
    expect(found.placements.length).toBeGreaterThan(0);
  });

  it('takes measured capacities before simulated ones', async () => {
    const demands = [demand('Llama-3.1-8B-Instruct', 5)];
    const measured = [{ model: 'meta-llama/Llama-3.1-8B-Instruct', gpu: 'A100-80-SXM', tp: 1, rate: 2.5 }];
    const only = { ...planOptions({ measured, objective: 'throughput' }) };
    const found = await plan(
      [pool('a', 'A100-80-SXM', 1, 2)],
      demands.map((one) => ({ ...one, tp: [1] })),
      [],
      context(only),
    );
    expect(found.placements).toMatchObject([{ tp: 1, replicas: 2, capacity: 5, source: 'measured' }]);
  });

  it('says which constraint binds and what would help when the demand cannot be served', async () => {
    const found = await plan(
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
      plan(
        [pool('a', 'A100-80-SXM', 1, 4)],
        [demand('Llama-2-13b-hf', 1)],
        [],
        context(planOptions({ objective: 'cost', latencyS })),
      );
    const { infeasible } = await asked(0.01);
    expect(infeasible).toMatch(/latency targets\. --latency [\d.]+ could be kept/);
    const least = Number(/--latency (\d+\.?\d*)/.exec(infeasible ?? '')?.[1]);
    expect((await asked(least * 1.1)).infeasible).toBeUndefined();
  });

  it('says what a model that fits nowhere would need', async () => {
    const huge = plan([pool('t', 'T4', 4, 4)], [demand('Llama-3.3-70B-Instruct', 1)], [], context(planOptions()));
    await expect(huge).rejects.toThrow(/memory \(C2\) binds.*smallest relaxation: weights in int4/s);
    const tall = plan(
      [pool('a', 'A100-80-SXM', 4, 8)],
      [{ ...demand('llama-30b', 1), tp: [8] }],
      [],
      context(planOptions()),
    );
    await expect(tall).rejects.toThrow(/8 does not divide the 52 attention heads/);
  });

  it.each([Number.NaN, -1, Number.POSITIVE_INFINITY])('refuses a rate of %d', async (rate) => {
    await expect(plan(POOLS, [{ ...demand('Llama-2-13b-hf', 1), rate }], [], context(planOptions()))).rejects.toThrow(
      /rate/,
    );
  });

  it('refuses an empty inventory, an empty workload, and one model twice', async () => {
    const one = demand('Llama-2-13b-hf', 1);
    await expect(plan([], [one], [], context(planOptions()))).rejects.toThrow(/no GPU/);
    await expect(plan(POOLS, [], [], context(planOptions()))).rejects.toThrow(/no model/);
    await expect(plan(POOLS, [one, one], [], context(planOptions()))).rejects.toThrow(/twice/);
    await expect(plan(POOLS, [{ ...one, rate: 0 }], [], context(planOptions()))).rejects.toThrow(/every rate is 0/);
  });
});
