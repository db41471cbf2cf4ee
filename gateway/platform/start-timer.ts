import type { StartTimer } from '../../shared/timing/start-timer.ts';

/** Starts a timer of this runtime, for code in `shared`, which has no timers. */
export const startTimer: StartTimer = (ms, ring) => {
  const timer = setTimeout(ring, ms);
  return () => clearTimeout(timer);
};
