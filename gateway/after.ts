import type { After } from '../shared/collections/timer.ts';

/** This runtime's timer, for what `shared` decides. */
export const after: After = (ms, ring) => {
  const timer = setTimeout(ring, ms);
  return () => clearTimeout(timer);
};

/**
 * Resolves when `work` has settled, after `ms` at the latest. `work` may belong to another request, which may never settle it, and code
 * after it must run in this request's context: so this makes a promise of its own.
 */
export async function settledWithin(work: Promise<void>, ms: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(resolve, ms);
  void work.finally(resolve);
  await promise;
  clearTimeout(timer);
}
