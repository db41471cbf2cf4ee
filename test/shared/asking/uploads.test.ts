import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type Upload, Uploads } from '../../../shared/asking/uploads.ts';

const KIB = 1024;

test('bodies that send nothing give way to one that sends, the slowest first', () => {
  const uploads = new Uploads(100 * KIB);
  const silent = Array.from({ length: 10 }, () => uploads.begin(0));
  silent.forEach((upload, n) => {
    expect(upload.hold(10 * KIB, 0)).toBe(true);
    upload.received(n === 0 ? 1 : 1_000 * n);
  });
  const active = uploads.begin(5_000);
  expect(active.hold(20 * KIB, 5_000)).toBe(true);
  expect(silent.map(({ givenUp }) => givenUp)).toEqual([true, true, ...Array(8).fill(false)]);
  expect(uploads.held).toBe(100 * KIB);
});

test('a body that just began is not cut off, so a newcomer is refused', () => {
  const uploads = new Uploads(10 * KIB);
  const first = uploads.begin(0);
  expect(first.hold(10 * KIB, 0)).toBe(true);
  expect(uploads.begin(1_000).hold(KIB, 1_000)).toBe(false);
  expect(first.givenUp).toBe(false);
});

test('a slow body does not push a faster one out', () => {
  const uploads = new Uploads(10 * KIB);
  const fast = uploads.begin(0);
  expect(fast.hold(9 * KIB, 0)).toBe(true);
  fast.received(9 * KIB);
  const slow = uploads.begin(0);
  expect(slow.hold(KIB, 0)).toBe(true);
  slow.received(10);
  expect(slow.hold(2 * KIB, 10_000)).toBe(false);
  expect(fast.givenUp).toBe(false);
});

test('whatever comes, no more than the bound is held, and all of it is given back', () => {
  const step = fc.record({
    what: fc.constantFrom('begin', 'hold', 'receive', 'end'),
    which: fc.nat(20),
    bytes: fc.integer({ min: 0, max: 200 }),
    ms: fc.nat(3_000),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 200 }), (steps) => {
      const uploads = new Uploads(1_000);
      const all: Upload[] = [];
      let now = 0;
      for (const { what, which, bytes, ms } of steps) {
        now += ms;
        if (what === 'begin') all.push(uploads.begin(now));
        const upload = all[which % Math.max(1, all.length)];
        if (what === 'hold') upload?.hold(bytes, now);
        if (what === 'receive') upload?.received(bytes);
        if (what === 'end') upload?.end();
        expect(uploads.held).toBeLessThanOrEqual(1_000);
        expect(uploads.held).toBeGreaterThanOrEqual(0);
      }
      for (const upload of all) upload.end();
      expect(uploads.held).toBe(0);
    }),
  );
});
