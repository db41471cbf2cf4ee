/** The division of a model's requests among regions. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type DivisionProblem, divideRequests } from '../../../scheduler/regions/live/divide-requests.ts';

const seconds = fc.double({ min: 0.01, max: 40, noNaN: true });
const drawn = fc
  .array(
    fc.record({ cost: seconds, load: seconds, room: fc.double({ min: 0, max: 2, noNaN: true }), weight: seconds }),
    {
      minLength: 1,
      maxLength: 12,
    },
  )
  .chain((regions) =>
    fc.record({
      requests: fc.double({ min: 1e-3, max: 1_000, noNaN: true }),
      smoothness: fc.double({ min: 1e-3, max: 10, noNaN: true }),
      regions: fc.constant(regions),
    }),
  )
  .map(({ requests, smoothness, regions }): DivisionProblem => {
    const weights = regions.reduce((sum, { weight }) => sum + weight, 0);
    return {
      requests,
      smoothness,
      cost: regions.map(({ cost }) => cost),
      load: regions.map(({ load }) => load),
      capacity: regions.map(({ load, room }) => requests * load * room),
      previous: regions.map(({ weight }) => weight / weights),
    };
  });

/** Seconds per request; load above the capacity costs 30 seconds each. */
function costOf({ requests, smoothness, cost, load, capacity, previous }: DivisionProblem, shares: readonly number[]) {
  return shares.reduce((sum, share, at) => {
    const over = Math.max(0, share * (load[at] ?? 0) - (capacity[at] ?? 0) / requests);
    return sum + (cost[at] ?? 0) * share + smoothness * (share - (previous[at] ?? 0)) ** 2 + 30 * over;
  }, 0);
}

describe('the division among regions', () => {
  it('is whole, and no move from a region to another costs less', () => {
    fc.assert(
      fc.property(drawn, (problem) => {
        const { shares } = divideRequests(problem);
        expect(shares.reduce((sum, share) => sum + share, 0)).toBeCloseTo(1, 9);
        expect(Math.min(...shares)).toBeGreaterThanOrEqual(0);
        const least = costOf(problem, shares);
        for (const from of shares.keys())
          for (const to of shares.keys()) {
            const moved = Math.min(shares[from] ?? 0, 1e-3);
            const other = shares.map((share, at) => share + (at === to ? moved : 0) - (at === from ? moved : 0));
            expect(costOf(problem, other)).toBeGreaterThanOrEqual(least - 1e-9);
          }
      }),
      { numRuns: 500 },
    );
  });

  it('overloads regions if none has capacity, and gives no share to a region that cannot serve', () => {
    const problem = { requests: 10, cost: [1, 2], load: [1, 1], previous: [0.5, 0.5], smoothness: 0.5 };
    const full = divideRequests({ ...problem, capacity: [0, 0] });
    expect(full.shares.reduce((sum, share) => sum + share, 0)).toBeCloseTo(1, 9);
    expect(full.overload).toBeGreaterThan(4);
    const never = Number.POSITIVE_INFINITY;
    expect(divideRequests({ ...problem, cost: [1, never], capacity: [0, 100] }).shares).toEqual([1, 0]);
    expect(divideRequests({ ...problem, cost: [never, never], capacity: [100, 100] }).shares).toEqual([0, 0]);
  });
});
