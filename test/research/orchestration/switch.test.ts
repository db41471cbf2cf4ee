import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { DeploymentPlan } from '../../../research/orchestration/deployment-plan.ts';
import { plansOf } from '../../../research/orchestration/enumerate.ts';
import { place } from '../../../research/orchestration/placement.ts';
import { shardMoves, shardOf } from '../../../research/orchestration/shards.ts';
import { kvMoveSeconds, switchCost } from '../../../research/orchestration/switch-cost.ts';
import { greedyTransfers, H100_LINKS, transferBound } from '../../../research/orchestration/transfer.ts';
import { SMALL } from './support.ts';

const { site } = SMALL;
const plans = plansOf(
  [
    { tp: 1, pp: 2 },
    { tp: 2, pp: 1 },
    { tp: 2, pp: 2 },
    { tp: 4, pp: 1 },
    { tp: 8, pp: 1 },
  ],
  8,
);
const anyPlan = fc.constantFrom(...plans);
const placed = (plan: DeploymentPlan) => place(plan, [], site).replicas;

describe('the transfer of weights', () => {
  it('gives every GPU exactly the shards that it lacks, each once', () => {
    fc.assert(
      fc.property(anyPlan, anyPlan, (from, to) => {
        const before = placed(from);
        const after = place(to, before, site).replicas;
        const { transfers } = greedyTransfers(shardMoves(before, after), 60e9, H100_LINKS);
        for (const replica of after) {
          for (const gpu of replica.gpus) {
            const [wanted, own] = [shardOf(replica, gpu), before.map((one) => shardOf(one, gpu)).find((one) => one)];
            const overlap = (axis: 'layers' | 'columns') =>
              Math.max(
                0,
                Math.min(wanted?.[axis][1] ?? 0, own?.[axis][1] ?? 0) -
                  Math.max(wanted?.[axis][0] ?? 0, own?.[axis][0] ?? 0),
              );
            const has = own === undefined ? 0 : overlap('layers') * overlap('columns');
            const needs = 1 / (replica.shape.tp * replica.shape.pp) - has;
            const gets = transfers.filter((one) => one.to === gpu).reduce((sum, { size }) => sum + size, 0);
            expect(gets).toBeCloseTo(needs, 9);
          }
        }
      }),
      { numRuns: 150, seed: 29 },
    );
  });

  it('is never below the bound of the linear program, and at most two and a half times it', async () => {
    await fc.assert(
      fc.asyncProperty(anyPlan, anyPlan, async (from, to) => {
        const before = placed(from);
        const moves = shardMoves(before, place(to, before, site).replicas);
        const greedy = greedyTransfers(moves, 60e9, H100_LINKS).seconds;
        const bound = await transferBound(moves, 60e9, H100_LINKS);
        expect(greedy).toBeGreaterThanOrEqual(bound * (1 - 1e-6));
        expect(greedy).toBeLessThanOrEqual(bound * 2.5 + 1e-9);
      }),
      { numRuns: 40, seed: 29 },
    );
  });

  it('of a plan that is there already is nothing', () => {
    const before = placed([{ shape: { tp: 2, pp: 1 }, replicas: 4 }]);
    const { seconds, transfer } = switchCost(before, [{ shape: { tp: 2, pp: 1 }, replicas: 4 }], site, 'peer transfer');
    expect([seconds, transfer.transfers.length]).toEqual([0, 0]);
  });

  it('comes from storage where no GPU holds the model', () => {
    const { transfer } = switchCost([], [{ shape: { tp: 8, pp: 1 }, replicas: 1 }], site, 'peer transfer');
    expect(transfer.transfers.every(({ from }) => from === -1)).toBe(true);
    expect(transfer.bottleneck).toBe('storage into node 0');
  });

  it('is faster between GPUs than by reload, and fastest from host memory where the shape was there', () => {
    const before = placed([{ shape: { tp: 2, pp: 1 }, replicas: 4 }]);
    const to: DeploymentPlan = [{ shape: { tp: 8, pp: 1 }, replicas: 1 }];
    const of = (method: 'reload' | 'peer transfer' | 'sleep') => switchCost(before, to, site, method).seconds;
    expect(of('peer transfer')).toBeLessThan(10);
    expect(of('reload')).toBeGreaterThan(50);
    expect(of('sleep')).toBeLessThan(of('peer transfer'));
  });

  it('does not fit where the plan does not', () => {
    expect(() => switchCost([], [{ shape: { tp: 8, pp: 1 }, replicas: 2 }], site, 'reload')).toThrow('there are 8');
  });
});

describe('running sequences at a switch', () => {
  const links = { tokenS: 0.03, bytesPerToken: 1e6, bytesPerS: 1e9 };
  const seconds = (...sequences: [tokens: number, remaining: number][]) =>
    kvMoveSeconds(
      sequences.map(([tokens, remaining]) => ({ tokens, remaining })),
      links,
    );

  it('move while they go on, with the tokens that they add meanwhile', () => {
    // 200 MB plus 1 MB per 30 ms, over 1 GB/s.
    expect(seconds([200, 400])).toBeCloseTo(0.2 / (1 - 1 / 30), 9);
  });

  it('drain where they end before the others have moved, and take no part of the links', () => {
    expect(seconds([200, 400], [1500, 3])).toBeCloseTo(seconds([200, 400]), 9);
    expect(seconds([1500, 3])).toBeCloseTo(0.09, 9);
    expect(seconds()).toBe(0);
  });

  it('that still run then have all arrived, and a moment earlier they had not', () => {
    const sequence = fc.tuple(fc.integer({ min: 1, max: 4000 }), fc.integer({ min: 1, max: 800 }));
    fc.assert(
      fc.property(fc.array(sequence, { minLength: 1, maxLength: 40 }), (sequences) => {
        const { tokenS, bytesPerToken, bytesPerS } = links;
        const needS = (at: number) => {
          const left = sequences.filter(([, remaining]) => remaining * tokenS > at + 1e-9);
          return left.reduce((sum, [tokens]) => sum + (tokens + at / tokenS) * bytesPerToken, 0) / bytesPerS;
        };
        const found = seconds(...sequences);
        expect(needS(found)).toBeLessThanOrEqual(found + 1e-6);
        expect(needS(found * 0.99 - 1e-4)).toBeGreaterThan(found * 0.99 - 1e-4);
      }),
      { numRuns: 300, seed: 29 },
    );
  });
});
