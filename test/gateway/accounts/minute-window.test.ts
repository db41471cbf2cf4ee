import fc from 'fast-check';
import { expect, test } from 'vitest';
import { MinuteWindow } from '../../../gateway/accounts/limits/minute-window.ts';

/** A Friday, well inside a month. */
const START = Date.parse('2026-11-20T10:00:00Z');

test('for any arrivals, no sixty seconds exceed the limit, and a wait is reported exactly', () => {
  const step = fc.record({ afterMs: fc.nat(20_000), count: fc.integer({ min: 1, max: 4 }) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), fc.integer({ min: 4, max: 12 }), (steps, limit) => {
      const window = new MinuteWindow();
      const letIn: { at: number; count: number }[] = [];
      let now = START;
      for (const { afterMs, count } of steps) {
        now += afterMs;
        const wait = window.waitFor(count, limit, now);
        expect(wait).toBeLessThanOrEqual(60_000);
        if (wait > 0) {
          const later = (ms: number) => new MinuteWindow(window.state(now), now).waitFor(count, limit, now + ms);
          expect([later(wait), later(wait - 1)]).toEqual([0, 1]);
        } else {
          window.add(count, now);
          letIn.push({ at: now, count });
        }
      }
      for (const { at } of letIn) {
        const inside = letIn.filter((one) => one.at >= at && one.at < at + 60_000);
        expect(inside.reduce((sum, { count }) => sum + count, 0)).toBeLessThanOrEqual(limit);
      }
    }),
    { numRuns: 500 },
  );
});

test('a window that went through a restart says what it said before', () => {
  const window = new MinuteWindow();
  window.add(3, START);
  window.add(2, START + 30_000);
  const again = new MinuteWindow(JSON.parse(JSON.stringify(window.state(START + 31_000))), START + 31_000);
  for (const after of [31_000, 50_000, 60_000, 89_999, 90_000, 400_000])
    expect(again.sum(START + after)).toBe(window.sum(START + after));
});

test('it holds a bounded number of slots, however much comes', () => {
  const window = new MinuteWindow();
  for (let ms = 0; ms < 120_000; ms += 7) window.add(1, START + ms);
  expect(window.state(START + 120_000).length).toBeLessThanOrEqual(241);
});

test('a correction changes the count at its own time, and leaves the window with it', () => {
  const window = new MinuteWindow();
  window.add(100, START);
  window.add(5, START + 10_000);
  window.correct(-90, START, START + 20_000);
  expect(window.sum(START + 20_000)).toBe(15);
  expect(window.sum(START + 60_000)).toBe(5);
  window.correct(7, START, START + 61_000); // its own time has left the window, so an increase counts now
  expect(window.sum(START + 61_000)).toBe(12);
});
