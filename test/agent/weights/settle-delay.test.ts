import { expect, it } from 'vitest';
import { SettleDelay } from '../../../agent/weights/settle-delay.ts';

it('a source may be read when the nearby nodes have not changed for a while', () => {
  const delay = new SettleDelay(2_000);
  expect(delay.isSettled('a', 1_000, 0)).toBe(false);
  expect(delay.isSettled('a', 2_000, 0)).toBe(true);
});

it('or when questions have waited for 10 s, though nodes join all the time', () => {
  const delay = new SettleDelay(2_000);
  for (let now = 0; now < 10_000; now += 1_000) expect(delay.isSettled('a', now, now)).toBe(false);
  expect(delay.isSettled('b', 10_000, 10_000)).toBe(false);
  expect(delay.isSettled('a', 10_000, 10_000)).toBe(true);
});

it('nodes that start together hours later wait again', () => {
  const delay = new SettleDelay(2_000);
  expect(delay.isSettled('a', 0, 0)).toBe(false);
  expect(delay.isSettled('a', 5_000, 0)).toBe(true);
  expect(delay.isSettled('a', 9_000_000, 8_999_000)).toBe(false);
});
