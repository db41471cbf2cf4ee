import { expect, test } from 'vitest';
import { AdaptiveTimeout } from '../../../shared/timing/adaptive-timeout.ts';

const BOUNDS = { leastMs: 400, mostMs: 10_000 };

test('a fast peer is waited for as long as is set', () => {
  const timeout = new AdaptiveTimeout(BOUNDS);
  expect(timeout.ms).toBe(400);
  for (const ms of [1, 30, 2, 80, 5]) timeout.answered(ms);
  expect(timeout.ms).toBe(400);
});

test('a slow peer is waited for longer from its first answer on', () => {
  const timeout = new AdaptiveTimeout(BOUNDS);
  timeout.answered(600);
  expect(timeout.ms).toBe(600 + 4 * 300);
  for (let times = 0; times < 50; times++) timeout.answered(600 + (times % 2) * 200);
  expect(timeout.ms).toBeGreaterThan(800);
});

test('one that became fast again is waited for shortly again', () => {
  const timeout = new AdaptiveTimeout(BOUNDS);
  timeout.answered(5_000);
  for (let times = 0; times < 60; times++) timeout.answered(3);
  expect(timeout.ms).toBe(400);
});

test('each wait in vain doubles the next, up to the most; an answer ends that', () => {
  const timeout = new AdaptiveTimeout(BOUNDS);
  const waits = Array.from({ length: 7 }, () => {
    const { ms } = timeout;
    timeout.expired();
    return ms;
  });
  expect(waits).toEqual([400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
  timeout.answered(100);
  expect(timeout.ms).toBe(400);
});

test('a slow peer can never make the wait longer than the most', () => {
  const timeout = new AdaptiveTimeout(BOUNDS);
  timeout.answered(1e9);
  expect(timeout.ms).toBe(10_000);
});
