import { expect, it } from 'vitest';
import { scalingOf } from '../../research/papers/opentela/scaling.ts';

const steps = (tokensPerS: (replicas: number) => number) =>
  [8, 16, 32, 48, 64, 48, 8].map((replicas) => ({
    replicas,
    tokensPerS: tokensPerS(replicas),
    mostTokensPerS: 10 * replicas,
  }));

it.each([
  ['all that the replicas can give', true, (n: number) => 9.7 * n],
  ['half of it', false, (n: number) => 5 * n],
  ['as much as the square root of the replicas', false, (n: number) => 10 * Math.sqrt(8 * n)],
  ['all of it but for one step', false, (n: number) => (n === 32 ? 8 : 10) * n],
  ['the same for any number of replicas', false, (n: number) => 80 + n / 1000],
])('tokens per second that are %s hold: %s', (_what, holds, tokensPerS) => {
  expect(scalingOf(steps(tokensPerS)).holds).toBe(holds);
});

it('the report has r and the least share', () => {
  const { r, share } = scalingOf(steps((n) => 5 * n));
  expect(r).toBeCloseTo(1);
  expect(share).toBe(0.5);
});
