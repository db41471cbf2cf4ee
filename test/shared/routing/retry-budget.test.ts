import { expect, it } from 'vitest';
import { RetryBudget } from '../../../shared/routing/retry-budget.ts';

/** Retries that are allowed among `requests` a second for a minute, if each one asks for `wish` retries. */
function minute(requests: number, wish: number, share?: number): number {
  const budget = new RetryBudget();
  let taken = 0;
  for (let n = 0; n < requests * 60; n++) {
    const now = (n * 1000) / requests;
    budget.asked(now);
    for (let tries = 0; tries < wish; tries++) if (budget.take(now, share)) taken++;
  }
  return taken;
}

it('retries are a fifth of the traffic however many fail, and a few a second', () => {
  for (const requests of [100, 1_000]) {
    const ratio = minute(requests, 3) / (requests * 60);
    expect(ratio).toBeGreaterThan(0.2);
    expect(ratio).toBeLessThan(0.2 + (10 / requests) * 1.3 + 0.02);
  }
});

it('a quiet installation may repeat every request', () => {
  expect(minute(2, 3)).toBe(360);
});

it('the share is what is set', () => {
  expect(minute(1_000, 1, 0) / 60_000).toBeLessThan(0.013);
  expect(minute(1_000, 1, 1)).toBe(60_000);
});

it('what was used up comes back within twenty seconds', () => {
  const budget = new RetryBudget();
  while (budget.take(0));
  expect(budget.take(9_000)).toBe(false);
  expect(budget.take(20_001)).toBe(true);
});
