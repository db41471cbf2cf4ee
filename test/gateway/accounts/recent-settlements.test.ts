/** An attempt that two processes settle counts once. */
import { expect, test } from 'vitest';
import { RecentSettlements } from '../../../gateway/accounts/limits/recent-settlements.ts';

const exact = { name: 'r', attempt: 1, prompt: 10, completion: 20, isComplete: true };
const estimate = { ...exact, completion: 7, isComplete: false };

test('the same attempt from another source: what was settled is returned', () => {
  const recent = new RecentSettlements();
  expect(recent.add('a', exact)).toBeUndefined();
  expect(recent.add('b', exact)).toMatchObject({ prompt: 10, completion: 20 });
  expect(recent.add('b', { ...exact, attempt: 2 })).toBeUndefined();
});

test('an estimate counts no audio and no images, so those of a complete report are returned as not settled yet', () => {
  const recent = new RecentSettlements();
  recent.add('a', estimate);
  expect(recent.add('b', { ...exact, audioMs: 3_000 })?.audioMs).toBeUndefined();
  expect(recent.add('c', { ...exact, audioMs: 3_000 })).toMatchObject({ audioMs: 3_000 });
});

test('a source corrects its own settlements itself', () => {
  const recent = new RecentSettlements();
  recent.add('a', estimate);
  expect(recent.add('a', exact)).toBeUndefined();
});

test('complete usage of another source replaces an estimate, and an estimate replaces nothing', () => {
  const recent = new RecentSettlements();
  recent.add('a', estimate);
  expect(recent.add('b', exact)).toMatchObject({ completion: 7 });
  expect(recent.add('a', estimate)).toEqual({ prompt: 10, completion: 7 });
  expect(recent.add('c', exact)).toMatchObject({ completion: 20 });
});
