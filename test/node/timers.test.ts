/** Timers as `shared/` takes them. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { startInterval, startTimer } from '../../node/timers.ts';

beforeEach(() => vi.useFakeTimers());
afterEach(() => vi.useRealTimers());

it('a timer rings once, and not after it was stopped', () => {
  const ring = vi.fn();
  startTimer(100, ring);
  startTimer(100, ring)();
  vi.advanceTimersByTime(1_000);
  expect(ring).toHaveBeenCalledTimes(1);
});

it('an interval rings until it is stopped', () => {
  const ring = vi.fn();
  const stop = startInterval(100, ring);
  vi.advanceTimersByTime(350);
  stop();
  vi.advanceTimersByTime(1_000);
  expect(ring).toHaveBeenCalledTimes(3);
});
