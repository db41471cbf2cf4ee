import type { StartTimer } from '../shared/collections/timer.ts';

/** This runtime's timer, for decisions in `shared`. */
export const startTimer: StartTimer = (ms, ring) => {
  const timer = setTimeout(ring, ms);
  return () => clearTimeout(timer);
};
