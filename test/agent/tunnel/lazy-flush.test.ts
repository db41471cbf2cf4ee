import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { LazyFlush } from '../../../agent/tunnel/lazy-flush.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('while responses take the frames along, no timer wakes the process; after a slow one a timer does', () => {
  const lazy = new LazyFlush();
  let flushes = 0;
  /** A frame waits, and the next message is sent after `ms`, or by the timer. */
  const request = (ms: number) => {
    lazy.later(() => {
      flushes++;
      lazy.sent();
    });
    const timers = vi.getTimerCount();
    vi.advanceTimersByTime(ms);
    lazy.sent();
    vi.advanceTimersByTime(250);
    return timers;
  };
  expect(request(1), 'nothing is known of this engine').toBe(1);
  expect([request(1), request(4), request(2)]).toEqual([0, 0, 0]);
  flushes = 0;
  expect(request(40), 'the tick sends the first late one').toBe(0);
  expect([request(40), request(40), flushes]).toEqual([1, 1, 2]);
  expect([request(1), request(1)], 'and a fast engine ends it again').toEqual([1, 0]);
});
