import fc from 'fast-check';
import { expect, test } from 'vitest';
import { BodyMemory, type BodyReservation } from '../../../shared/proxy/body-memory.ts';

const KIB = 1024;

test('bodies that stand still give way to one that comes, the longest still first, however much came of them before', () => {
  const uploads = new BodyMemory(100 * KIB);
  const still = Array.from({ length: 10 }, (_, n) => {
    const upload = uploads.begin(n * 100);
    expect(upload.hold(10 * KIB, n * 100)).toBe(true);
    upload.received(10 * KIB, n * 100);
    return upload;
  });
  const active = uploads.begin(5_000);
  expect(active.hold(20 * KIB, 5_000)).toBe(true);
  expect(still.map(({ givenUp }) => givenUp)).toEqual([true, true, ...Array(8).fill(false)]);
  expect(uploads.held).toBe(100 * KIB);
});

test('a body that trickles is behind as well', () => {
  const uploads = new BodyMemory(10 * KIB);
  const trickle = uploads.begin(0);
  expect(trickle.hold(10 * KIB, 0)).toBe(true);
  for (let now = 0; now < 5_000; now += 100) trickle.received(1, now);
  expect(uploads.begin(5_000).hold(KIB, 5_000)).toBe(true);
  expect(trickle.givenUp).toBe(true);
});

test('a body at a slow line’s pace keeps its place, and a newcomer waits', () => {
  const uploads = new BodyMemory(10 * KIB);
  const slow = uploads.begin(0);
  expect(slow.hold(10 * KIB, 0)).toBe(true);
  for (let now = 0; now <= 60_000; now += 1_000) slow.received(20 * KIB, now);
  expect(uploads.begin(61_000).hold(KIB, 61_000)).toBe(false);
  expect(slow.givenUp).toBe(false);
});

test('a body that waits for room is not behind', () => {
  const uploads = new BodyMemory(10 * KIB);
  const first = uploads.begin(0);
  expect(first.hold(9 * KIB, 0)).toBe(true);
  const waiting = uploads.begin(0);
  expect(waiting.hold(KIB, 0)).toBe(true);
  for (let now = 0; now <= 10_000; now += 100) {
    first.received(2 * KIB, now);
    expect(waiting.hold(2 * KIB, now)).toBe(false);
  }
  expect(first.hold(10 * KIB, 10_000)).toBe(false);
  expect(waiting.givenUp).toBe(false);
});

test('at most the bound is held for any input, and all of it is returned', () => {
  const step = fc.record({
    what: fc.constantFrom('begin', 'hold', 'receive', 'end'),
    which: fc.nat(20),
    bytes: fc.integer({ min: 0, max: 1_200 }),
    ms: fc.nat(3_000),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200, size: 'max' }), (steps) => {
      const uploads = new BodyMemory(1_000);
      const all: BodyReservation[] = [];
      let now = 0;
      for (const { what, which, bytes, ms } of steps) {
        now += ms;
        if (what === 'begin') all.push(uploads.begin(now));
        const upload = all[which % Math.max(1, all.length)];
        if (what === 'hold') upload?.hold(bytes, now);
        if (what === 'receive') upload?.received(bytes, now);
        if (what === 'end') upload?.end();
        expect(uploads.held).toBeLessThanOrEqual(1_000);
        expect(uploads.held).toBeGreaterThanOrEqual(0);
      }
      for (const upload of all) upload.end();
      expect(uploads.held).toBe(0);
    }),
  );
});
