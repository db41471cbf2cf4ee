import type { StartTimer } from '../shared/timing/start-timer.ts';

/** Node's timer, for the logic in `shared`, which starts no timers itself. */
export const startTimer: StartTimer = (ms, ring) => {
  const timer = setTimeout(ring, ms);
  return () => clearTimeout(timer);
};

/** Calls back every `ms` until the returned function is called. It does not keep the process alive. */
export const startInterval: StartTimer = (ms, ring) => {
  const timer = setInterval(ring, ms).unref();
  return () => clearInterval(timer);
};
