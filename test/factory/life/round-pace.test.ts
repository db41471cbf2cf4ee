import { expect, it } from 'vitest';
import { RoundPace } from '../../../factory/life/factory.ts';

/** Rounds in `ms` with a gateway that always has news. */
function rounds(pace: RoundPace, every: number, from: number, ms: number): number {
  let count = 0;
  for (let now = from; now < from + ms; count++) now += pace.rest(every, now);
  return count;
}

it('news without end are one round in five seconds, after a few at once', () => {
  const pace = new RoundPace(0);
  expect(rounds(pace, 15_000, 0, 5_000)).toBeLessThanOrEqual(6);
  expect(rounds(pace, 15_000, 5_000, 600_000)).toBeLessThanOrEqual(121);
});

it('after a quiet time a cold start is not held up: a request, a job, a node that joins, one that serves', () => {
  const pace = new RoundPace(0);
  rounds(pace, 15_000, 0, 60_000);
  expect([0, 1, 2, 3].map((n) => pace.rest(15_000, 120_000 + n * 400))).toEqual([300, 300, 300, 300]);
});

it('an operator who wants rounds more often gets them', () => {
  expect(rounds(new RoundPace(0), 1_000, 0, 60_000)).toBeGreaterThanOrEqual(59);
});

it('a clock that is set back gives no rounds', () => {
  const pace = new RoundPace(1_000_000);
  for (let n = 0; n < 6; n++) pace.rest(15_000, 1_000_000);
  expect(pace.rest(15_000, 0)).toBeGreaterThanOrEqual(5_000);
});
