import { expect, it } from 'vitest';
import { KeyRing, ROTATE_MS } from '../../../agent/seal/key-ring.ts';
import { ReplayMemory } from '../../../agent/seal/replay.ts';

it('a key is followed after a day, opens for twenty minutes more, and then no more', () => {
  let now = 1_000;
  const ring = new KeyRing(() => now);
  const first = ring.current.kid;
  now += ROTATE_MS - 1;
  expect(ring.rotate()).toBe(false);
  now += 1;
  expect(ring.rotate()).toBe(true);
  expect(ring.current.kid).not.toBe(first);
  now += 20 * 60_000 - 1;
  expect(ring.find(first)?.kid).toBe(first);
  now += 1;
  expect(ring.find(first)).toBeUndefined();
  expect(ring.find(ring.current.kid)).toBeDefined();
});

it('a request that was answered is remembered until it counts no more, and a full memory takes none', () => {
  let now = 0;
  const memory = new ReplayMemory(() => now, 2);
  expect([memory.take('a', 100), memory.take('a', 100), memory.take('b', 200), memory.take('c', 300)]).toEqual([
    true,
    false,
    true,
    false,
  ]);
  now = 100;
  expect(memory.take('c', 300)).toBe(true);
  memory.forget('b');
  expect(memory.take('b', 200)).toBe(true);
  expect(memory.size).toBe(2);
});
