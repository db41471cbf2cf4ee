import type { StartTimer } from '../../shared/collections/start-timer.ts';

/** This runtime's timer, for the code in `shared`. */
export const startTimer: StartTimer = (ms, ring) => {
  const timer = setTimeout(ring, ms);
  return () => clearTimeout(timer);
};
