import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { balance, balanceByHighs, fillOrWait } from '../../../scheduler/assignment/demand-assignment.ts';

const problems = fc
  .record({ groups: fc.integer({ min: 1, max: 7 }), kinds: fc.integer({ min: 1, max: 6 }) })
  .chain(({ groups, kinds }) =>
    fc.record({
      rates: fc.array(
        fc.array(
          fc.oneof(
            { weight: 1, arbitrary: fc.constant(0) },
            { weight: 8, arbitrary: fc.double({ min: 0.05, max: 50, noNaN: true }) },
          ),
          {
            minLength: kinds,
            maxLength: kinds,
          },
        ),
        { minLength: groups, maxLength: groups },
      ),
      replicas: fc.array(fc.integer({ min: 1, max: 8 }), { minLength: groups, maxLength: groups }),
      demand: fc.array(fc.oneof(fc.constant(0), fc.double({ min: 0.01, max: 200, noNaN: true })), {
        minLength: kinds,
        maxLength: kinds,
      }),
    }),
  );

describe('the assignment of kinds to replicas', () => {
  it('has the least load that HiGHS finds, serves all that can be served, and keeps to the loads it tells', async () => {
    await fc.assert(
      fc.asyncProperty(problems, async (problem) => {
        const [own, proof] = [balance(problem), await balanceByHighs(problem)];
        expect(Math.abs(own.load - proof.load)).toBeLessThanOrEqual(1e-5 * (1 + proof.load));
        problem.demand.forEach((wanted, j) => {
          const possible = problem.rates.some((row) => (row[j] ?? 0) > 0);
          expect(own.served[j]).toBeCloseTo(possible ? wanted : 0, 5);
        });
      }),
      { numRuns: 150, seed: 29 },
    );
  });

  it('with waits lets no group be overfull where HiGHS has room for all, and else only groups that suit what waits', async () => {
    await fc.assert(
      fc.asyncProperty(problems, async (problem) => {
        const cost = problem.rates.map((row) => row.map((rate) => (rate > 0 ? 1 / rate : 1e4)));
        const own = fillOrWait(problem, { cost, wait: problem.demand.map(() => 1e6), full: 1 });
        const proof = await balanceByHighs(problem);
        if (proof.load <= 1 - 1e-6) expect(own.load).toBeLessThanOrEqual(1 + 1e-5);
        problem.demand.forEach((wanted, j) => {
          const best = Math.max(...problem.rates.map((row) => row[j] ?? 0));
          expect(own.served[j]).toBeCloseTo(best > 0 ? wanted : 0, 5);
          // Less than half as fast as the fastest: it gets nothing beyond its capacity.
          own.flow.forEach((row, k) => {
            const rate = problem.rates[k]?.[j] ?? 0;
            if (rate > 0 && rate < 0.49 * best)
              expect(row[j]).toBeLessThanOrEqual(rate * (problem.replicas[k] ?? 0) + 1e-5);
          });
        });
      }),
      { numRuns: 150, seed: 31 },
    );
  });

  it('of Appendix D takes 13.636 s with 100 requests of both kinds, 9.17 s with 100 and 50', () => {
    const problem = {
      rates: [
        [10, 5],
        [5, 3],
        [5, 3],
      ],
      replicas: [1, 1, 1],
    };
    expect(balance({ ...problem, demand: [100, 100] }).load).toBeCloseTo(13.636, 3);
    expect(balance({ ...problem, demand: [100, 50] }).load).toBeCloseTo(9.1667, 3);
  });

  it('goes where answers come soonest while replicas are idle, and where there is room when they are not', () => {
    const problem = { rates: [[10], [5]], replicas: [1, 1] };
    const preference = { cost: [[9], [1]], idle: 0.7 };
    const idle = balance({ ...problem, demand: [3] }, preference);
    expect(idle.flow[1]?.[0]).toBeCloseTo(3, 6);
    const full = balance({ ...problem, demand: [14] }, preference);
    expect(full.load).toBeCloseTo(14 / 15, 6);
  });

  it('of no demand is empty', () => {
    expect(balance({ rates: [[1, 2]], replicas: [2], demand: [0, 0] })).toMatchObject({ load: 0, served: [0, 0] });
  });
});
