import type { StartTimer } from '../../shared/timing/start-timer.ts';

/** Starts a timer of this runtime, for code in `shared`, which has no timers. */
export const startTimer: StartTimer = (ms, onTimer) => {
  const timer = setTimeout(onTimer, ms);
  return () => clearTimeout(timer);
};
