import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { packingRows, packs, packsInto } from '../../scheduler/solver/packing-constraints.ts';
import type { Option } from '../../scheduler/solver/planning-problem.ts';
import { solvePlan } from '../../scheduler/solver/solve-plan.ts';
import { demand, planOptions, pool } from './support/small.ts';

describe('nodes', () => {
  it('replicas of 4 do not fit nodes of 6 twice, whatever the sum of GPUs says', () => {
    const pools = [pool('six', 'A100-80-SXM', 2, 6)];
    const option = (tp: number): Option => ({
      demand: 0,
      pool: 0,
      tp,
      gpus: tp,
      capacity: 1,
      points: [],
      source: 'estimated',
    });
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
    const { problem, counts } = await solvePlan(pools, demands, [], planOptions({ objective: 'throughput' }));
    expect(packs(problem.options, counts, pools)).toBe(true);
  });
});
