import { expect, test } from 'vitest';
import { BatchRates } from '../../../gateway/batch/batch-rates.ts';
import { Obstacle } from '../../../gateway/batch/step-failures.ts';

const NOW = 1_000_000_000_000;

test('an obstacle blocks for five seconds, and for no longer where the clock is set back by an hour', () => {
  const obstacle = new Obstacle();
  expect(obstacle.blocks(NOW)).toBe(false);
  obstacle.record('the file store does not answer', NOW);
  expect([obstacle.blocks(NOW + 4_999), obstacle.blocks(NOW + 5_000)]).toEqual([true, false]);
  expect([obstacle.blocks(NOW - 3_600_000), obstacle.shown(NOW - 3_600_000, false)]).toEqual([false, null]);
});

test('the rate of lines is that since the clock was set back by an hour', () => {
  const progress = new BatchRates();
  for (let s = 0; s <= 60; s++) progress.add(NOW + s * 1_000, 10, 0);
  const later = NOW - 3_600_000;
  for (let s = 0; s <= 20; s++) progress.add(later + s * 1_000, 1, 0);
  expect(progress.linesPerS(later + 20_000)).toBeCloseTo(1, 0);
});

test('a node that declined a function is named while no other runs it, for a quarter of an hour', () => {
  const obstacle = new Obstacle();
  obstacle.decline('the function declares 4 GPUs', NOW);
  expect(obstacle.blocks(NOW)).toBe(false);
  expect(obstacle.shown(NOW + 899_999, false)).toBe('A node declined: the function declares 4 GPUs');
  expect(obstacle.shown(NOW, true)).toBeNull();
  expect(obstacle.shown(NOW + 900_000, false)).toBeNull();
  obstacle.record('The file store is full.', NOW);
  expect(obstacle.shown(NOW, false)).toBe('The file store is full.');
});
