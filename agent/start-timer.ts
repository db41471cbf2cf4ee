import type { StartTimer } from '../shared/collections/timer.ts';

/** This runtime's timer, for what `shared` decides. */
export const startTimer: StartTimer = (ms, ring) => {
  const timer = setTimeout(ring, ms);
  return () => clearTimeout(timer);
};
