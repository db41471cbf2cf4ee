import { MonotonicClock } from '../../shared/collections/monotonic-clock.ts';

const clock = new MonotonicClock(() => performance.timeOrigin + performance.now());

/**
 * Milliseconds for deadlines and windows within this process. The machine's clock may be set by minutes (NTP after a
 * boot, a virtual machine that was suspended): deadlines on that clock would all expire together, or not for minutes.
 * Close to the time since the epoch, but never a date to store or to show.
 */
export function steadyNow(): number {
  return Math.floor(clock.now());
}
