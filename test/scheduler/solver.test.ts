import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { dataPath, findGpu, findModel } from '../../scheduler/catalogue/catalogue.ts';
import { parameters } from '../../scheduler/catalogue/model.ts';
import { readInventory, readWorkload } from '../../scheduler/planner/input.ts';
import { plan } from '../../scheduler/planner/milp.ts';
import { planOfCounts } from '../../scheduler/planner/of-counts.ts';
import { PAPER_LIMITS } from '../../scheduler/serving/limits.ts';
import { memoryProportional } from '../../scheduler/solver/baselines.ts';
import { evaluate } from '../../scheduler/solver/evaluate.ts';
import { OptionTable } from '../../scheduler/solver/options.ts';
import { packingRows, packs, packsInto } from '../../scheduler/solver/packing.ts';
import { decide } from '../../scheduler/solver/plan.ts';
import type { Demand, Option, PlanOptions, Pool } from '../../scheduler/solver/problem.ts';
import { measuredDrains } from '../../scheduler/validate/measured.ts';
import { catalogue, demand, planOptions, pool } from './support/small.ts';

/** Every set of replicas that fits the pools. */
function* allCounts(options: readonly Option[], pools: readonly Pool[]): Generator<number[]> {
  const rows = packingRows(options, pools);
  const counts = options.map(() => 0);
  function* from(o: number): Generator<number[]> {
    if (o === options.length) return void (yield [...counts]);
    for (let n = 0; ; n++) {
      counts[o] = n;
      const fits = rows.every(
        ({ limit, terms }) =>
          terms.reduce((sum, { option, factor }) => sum + factor * (counts[option] ?? 0), 0) <= limit,
      );
      if (!fits) break;
      yield* from(o + 1);
    }
    counts[o] = 0;
  }
  yield* from(0);
}

const POOLS = [pool('a', 'A100-80-SXM', 1, 4), pool('h', 'H100-SXM', 1, 4)];

describe('the solver, where everything can be tried', () => {
  const demands = [demand('Llama-2-13b-hf', 3), demand('CodeLlama-34b-hf', 1.5)];

  it('finds the least mean latency', async () => {
    const { problem, counts, report } = await decide(POOLS, demands, [], planOptions({ gap: 0 }));
    const ours = evaluate(problem.options, counts, demands);
    let best = Number.POSITIVE_INFINITY;
    for (const tried of allCounts(problem.options, POOLS)) {
      const { unserved, meanLatencyS } = evaluate(problem.options, tried, demands);
      if (unserved.every((rate) => rate === 0) && meanLatencyS < best) best = meanLatencyS;
    }
    expect(ours.unserved).toEqual([0, 0]);
    expect(ours.meanLatencyS).toBeCloseTo(best, 4);
    expect(report.gap).toBeLessThan(1e-3);
  });

  it('finds the largest share that all models reach', async () => {
    const { problem, counts } = await decide(POOLS, demands, [], planOptions({ objective: 'throughput', gap: 0 }));
    let best = 0;
    for (const tried of allCounts(problem.options, POOLS))
      best = Math.max(best, evaluate(problem.options, tried, demands).z);
    expect(evaluate(problem.options, counts, demands).z).toBeGreaterThan(best * 0.998);
  });

  it('finds the cheapest plan, and a dearer one where answers must be faster', async () => {
    const cost = async (latencyS?: number) => {
      const { problem, counts } = await decide(
        POOLS,
        demands,
        [],
        planOptions({ objective: 'cost', gap: 0, ...(latencyS === undefined ? {} : { latencyS }) }),
      );
      const usd = (tried: readonly number[]) =>
        problem.options.reduce(
          (sum, option, o) => sum + (tried[o] ?? 0) * option.tp * (POOLS[option.pool]?.gpu.usdPerHour ?? 0),
          0,
        );
      return { problem, usd: usd(counts), of: usd };
    };
    const { problem, usd, of } = await cost();
    let best = Number.POSITIVE_INFINITY;
    for (const tried of allCounts(problem.options, POOLS)) {
      if (evaluate(problem.options, tried, demands, 'cost').unserved.every((rate) => rate === 0))
        best = Math.min(best, of(tried));
    }
    expect(usd).toBeCloseTo(best, 6);
    expect((await cost(2)).usd).toBeGreaterThan(usd);
  });
});

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
    for (const { why } of found.models) expect(why.join(' ')).toMatch(/binds|left|ends its batch/);
    expect(found.models.map(({ why }) => why.join(' ')).join(' ')).toMatch(/runner-up/);
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
    expect(found.infeasible).toMatch(/capacity \(C1\) of a binds/);
    expect(found.infeasible).toMatch(/Smallest relaxation: \d+ % of all rates, or about \d+ more GPUs/);
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
    expect(infeasible).toMatch(/the limit binds. Smallest relaxation: --latency [\d.]+/);
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

describe('nodes', () => {
  it('replicas of 4 do not fit nodes of 6 twice, whatever the sum of GPUs says', () => {
    const pools = [pool('six', 'A100-80-SXM', 2, 6)];
    const option = (tp: number): Option => ({ demand: 0, pool: 0, tp, capacity: 1, points: [], source: 'estimated' });
    const options = [option(4), option(2)];
    expect(packs(options, [2, 2], pools)).toBe(true);
    expect(packs(options, [3, 0], pools)).toBe(false);
    const holds = (counts: number[]) =>
      packingRows(options, pools).every(
        ({ limit, terms }) => terms.reduce((sum, { option: o, factor }) => sum + factor * (counts[o] ?? 0), 0) <= limit,
      );
    expect(holds([2, 2])).toBe(true);
    expect(holds([3, 0])).toBe(false);
  });

  it('packing by counts says the same as packing node by node', () => {
    const byNode = (sizes: readonly number[], nodes: number, gpusPerNode: number) => {
      const free = new Array<number>(nodes).fill(gpusPerNode);
      return [...sizes]
        .sort((a, b) => b - a)
        .every((size) => {
          const best = free.reduce(
            (found, left, i) => (left >= size && (found < 0 || left < (free[found] ?? 0)) ? i : found),
            -1,
          );
          if (best >= 0) free[best] = (free[best] ?? 0) - size;
          return best >= 0;
        });
    };
    fc.assert(
      fc.property(
        fc.array(fc.constantFrom(1, 2, 4, 8), { maxLength: 30 }),
        fc.integer({ min: 1, max: 6 }),
        fc.integer({ min: 1, max: 12 }),
        (sizes, nodes, gpusPerNode) => {
          const counted = new Map<number, number>();
          for (const size of sizes) counted.set(size, (counted.get(size) ?? 0) + 1);
          expect(packsInto(counted, { nodes, gpusPerNode })).toBe(byNode(sizes, nodes, gpusPerNode));
        },
      ),
      { numRuns: 500, seed: 3 },
    );
  });

  it('a solution of the program always fits the nodes', async () => {
    const pools = [pool('six', 'A100-80-SXM', 3, 6), pool('seven', 'H100-SXM', 2, 7)];
    const demands = [demand('Llama-2-13b-hf', 10), demand('CodeLlama-34b-hf', 5), demand('Llama-3.3-70B-Instruct', 3)];
    const { problem, counts } = await decide(pools, demands, [], planOptions({ objective: 'throughput' }));
    expect(packs(problem.options, counts, pools)).toBe(true);
  });
});

describe("the paper's experiment", () => {
  const { pools } = readInventory(dataPath('paper-inventory.json'), catalogue);
  const tps: Record<string, number> = { '13b': 1, '34b': 2, '70B': 4 };
  const demands: Demand[] = readWorkload(dataPath('paper-workload.json'), catalogue).map((one) => ({
    ...one,
    tp: [tps[/\d+[bB]/.exec(one.model.id.split('-').slice(1).join('-'))?.[0] ?? ''] ?? 1],
  }));
  const options = planOptions({ objective: 'throughput', limits: PAPER_LIMITS });
  const table1 = [
    'CodeLlama-34b-hf a100 2x5',
    'CodeLlama-34b-hf gh200 2x8',
    'Llama-2-13b-hf a100 1x6',
    'Llama-3.3-70B-Instruct a100 4x2',
    'Llama-3.3-70B-Instruct gh200 4x4',
  ];
  const rows = (found: Awaited<ReturnType<typeof plan>>) =>
    found.placements.map((one) => `${one.model.split('/')[1]} ${one.pool} ${one.tp}x${one.replicas}`).sort();

  it('from the measured drain times gives Table 1', async () => {
    const measured = measuredDrains().map((drain) => ({
      model: findModel(catalogue, drain.model).id,
      gpu: findGpu(catalogue, drain.gpu).id,
      tp: drain.tp,
      rate: (drain.rate * drain.durationS) / drain.seconds,
    }));
    expect(rows(await plan(pools, demands, [], { catalogue, options: { ...options, measured } }))).toEqual(table1);
  });

  it('from the simulator alone gives a plan that is no worse than Table 1, which is close to it', async () => {
    const found = await plan(pools, demands, [], { catalogue, options });
    const table = new OptionTable(demands, pools, options);
    const counts = table.options.map((option) => {
      const row = `${demands[option.demand]?.model.id.split('/')[1]} ${pools[option.pool]?.id} ${option.tp}x`;
      return Number(table1.find((line) => line.startsWith(row))?.slice(row.length) ?? 0);
    });
    const theirs = planOfCounts('Table 1', table, counts, demands, pools);
    expect(theirs.servedShare).toBeGreaterThan(0.2);
    expect(found.servedShare).toBeGreaterThanOrEqual(theirs.servedShare);
    expect(found.servedShare).toBeLessThan(theirs.servedShare * 1.02);
  });

  it('memP gives 4, 16 and 36 GPUs, 2.66 away from its targets', async () => {
    const table = new OptionTable(demands, pools, options);
    const counts = await memoryProportional(table.options, demands, pools);
    const gpus = demands.map((_, m) =>
      table.options.reduce((sum, option, o) => sum + (option.demand === m ? option.tp * (counts[o] ?? 0) : 0), 0),
    );
    expect(gpus).toEqual([4, 16, 36]);
    const shares = demands.map((one) => one.rate * parameters(one.model));
    const total = shares.reduce((sum, share) => sum + share, 0);
    const off = gpus.reduce((sum, n, m) => sum + Math.abs(n - (56 * (shares[m] ?? 0)) / total), 0);
    expect(off).toBeCloseTo(2.66, 0);
  });
});
