import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { evaluate } from '../../scheduler/solver/evaluate.ts';
import { packingRows, packs, packsInto } from '../../scheduler/solver/packing.ts';
import { decide } from '../../scheduler/solver/plan.ts';
import type { Option, Pool } from '../../scheduler/solver/problem.ts';
import { demand, planOptions, pool } from './support/small.ts';

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
