import { expect, test } from 'vitest';
import { waitWithProgress } from '../../../shared/timing/wait-with-progress.ts';
import { VirtualLoop } from './virtual-loop.ts';

test('a wait tells how long it lasts, more seldom as it goes on, and ends with the answer', async () => {
  const loop = new VirtualLoop();
  const told: number[] = [];
  const { promise, resolve } = Promise.withResolvers<string>();
  const waiting = waitWithProgress(promise, loop.after, (seconds) => told.push(seconds));
  loop.run(4_000);
  expect(told).toEqual([]);
  loop.run(200_000);
  expect(told).toEqual([5, 20, 60, 120, 180]);
  resolve('there');
  expect(await waiting).toBe('there');
  loop.run(600_000);
  expect(told).toHaveLength(5);
  expect(loop.timers).toBe(0);
});

test('a wait that fails tells nothing more', async () => {
  const loop = new VirtualLoop();
  const told: number[] = [];
  await expect(
    waitWithProgress(Promise.reject(new Error('gone')), loop.after, (seconds) => told.push(seconds)),
  ).rejects.toThrow('gone');
  loop.run(600_000);
  expect(told).toEqual([]);
});
