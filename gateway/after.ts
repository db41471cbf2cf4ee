import type { After } from '../shared/collections/timer.ts';

/** This runtime's timer, for what `shared` decides. */
export const after: After = (ms, ring) => {
  const timer = setTimeout(ring, ms);
  return () => clearTimeout(timer);
};
