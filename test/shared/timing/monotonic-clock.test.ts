import fc from 'fast-check';
import { expect, test } from 'vitest';
import { MonotonicClock } from '../../../shared/timing/monotonic-clock.ts';

test('a clock that is set back stands still for no longer than that moment', () => {
  let wall = 1_000_000;
  const clock = new MonotonicClock(() => wall);
  wall += 5_000;
  expect(clock.now()).toBe(1_005_000);
  wall -= 600_000;
  expect(clock.now()).toBe(1_005_000);
  wall += 2_000;
  expect(clock.now()).toBe(1_007_000);
});

test('never goes back, for any steps of the clock underneath, and all forward steps count', () => {
  fc.assert(
    fc.property(fc.array(fc.integer({ min: -1_000_000, max: 1_000_000 })), (steps) => {
      let wall = 0;
      const clock = new MonotonicClock(() => wall);
      let forward = 0;
      for (const step of steps) {
        wall += step;
        forward += Math.max(0, step);
        expect(clock.now()).toBe(forward);
      }
    }),
  );
});
