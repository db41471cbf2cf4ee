import { MonotonicClock } from '../../shared/timing/monotonic-clock.ts';

const clock = new MonotonicClock(() => performance.timeOrigin + performance.now());

/**
 * Milliseconds for deadlines and windows within this process. The machine's clock may be changed by minutes (NTP after
 * a boot, a suspended virtual machine): deadlines on that clock would all expire together, or not for minutes. The
 * result is close to the time since the epoch, but it must not be stored or shown as a date.
 */
export function steadyNow(): number {
  return Math.floor(clock.now());
}
