import { expect, test } from 'vitest';
import { DeadlineTicker } from '../../../shared/attempts/deadline-ticker.ts';

const EVERY_MS = 250;

function judged(...at: number[]): boolean[] {
  const rounds = new DeadlineTicker(EVERY_MS);
  return at.map((now) => rounds.judges(now));
}

test('turns in time judge, and so do those that are a little late', () => {
  expect(judged(0, 250, 500, 990)).toEqual([true, true, true, true]);
});

test('the tick after a pause expires no deadline, the next one does', () => {
  expect(judged(0, 250, 3_000, 3_250)).toEqual([true, true, false, true]);
});

test('a ticker that is always late expires deadlines every second time', () => {
  expect(judged(0, 1_000, 2_000, 3_000, 4_000)).toEqual([true, false, true, false, true]);
});

test('a rest is no pause', () => {
  const rounds = new DeadlineTicker(EVERY_MS);
  rounds.judges(0);
  rounds.rest();
  expect(rounds.judges(60_000)).toBe(true);
});
