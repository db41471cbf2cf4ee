import { expect, it } from 'vitest';
import { Backoff, backoffMs } from '../../../shared/timing/backoff.ts';

const BOUNDS = { minMs: 100, maxMs: 1_000 };

it('doubles up to the maximum, also after any number of failures', () => {
  expect([0, 1, 2, 3, 4, 10_000].map((earlier) => backoffMs(earlier, BOUNDS))).toEqual([
    100, 200, 400, 800, 1_000, 1_000,
  ]);
});

it.each([
  [0, 0.2, 80],
  [0.5, 0.2, 100],
  [1, 0.2, 120],
  [0, 0.5, 50],
  [1, 0.5, 150],
])('random number %d and spread %d: the first wait is %d ms', (random, spread, ms) => {
  expect(new Backoff(BOUNDS, () => random, spread).next()).toBeCloseTo(ms);
});

it('begins again after a success', () => {
  const backoff = new Backoff(BOUNDS, () => 0.5);
  expect([backoff.next(), backoff.next(), backoff.failures]).toEqual([100, 200, 2]);
  backoff.reset();
  expect([backoff.failures, backoff.next()]).toEqual([0, 100]);
});
