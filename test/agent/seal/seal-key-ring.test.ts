import { expect, it } from 'vitest';
import { KeyRing, ROTATE_MS } from '../../../agent/seal/seal-key-ring.ts';
import { ReplayMemory } from '../../../shared/collections/replay-memory.ts';

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

it('a key that was made while the clock was ahead is followed when the clock is set right', () => {
  const start = 1e12;
  let now = start + 365 * ROTATE_MS;
  const ring = new KeyRing(() => now);
  const first = ring.current.kid;
  now = start;
  expect(ring.rotate()).toBe(true);
  expect(ring.current.until - now).toBeLessThan(2 * ROTATE_MS);
  expect(ring.find(first)).toBeDefined();
  now += 21 * 60_000;
  expect(ring.find(first)).toBeUndefined();
  expect(ring.rotate()).toBe(false);
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

it('a hundred thousand requests repeated at a full memory are all refused, without a walk through it for each', () => {
  let now = 0;
  const cost = (act: () => void) => {
    const from = process.cpuUsage();
    act();
    const { user, system } = process.cpuUsage(from);
    return user + system;
  };
  const memory = new ReplayMemory(() => now);
  const filled = cost(() => {
    for (let n = 0; n < 100_000; n++) memory.take(String(n), 1_000 + n);
  });
  let taken = 0;
  const repeated = cost(() => {
    for (let n = 0; n < 100_000; n++) if (memory.take(String(n), 200_000)) taken++;
    for (let n = 0; n < 2_000; n++) if (memory.take(`new ${n}`, 200_000)) taken++;
  });
  // A walk over all entries would cost a hundred thousand steps, each time.
  expect([memory.size, taken, repeated < 30 * filled]).toEqual([100_000, 0, true]);
  now = 1_000;
  expect([memory.take('one', 200_000), memory.take('two', 200_000)]).toEqual([true, false]);
});
