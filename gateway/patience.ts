import type { After } from '../shared/collections/timer.ts';
import { Patience, type PatienceHost } from '../shared/patience/patience.ts';
import { after } from './after.ts';
import { steadyNow } from './steady-clock.ts';

const host: PatienceHost & { every: After | undefined } = { now: steadyNow, after, every: undefined };

/** How long this process waits for others. Deadlines are set and judged by `patience.now()`, waits are ended by `patience.after`. */
export const patience = new Patience(host);

/**
 * For a host whose process lives on between requests: from here on turns that come late count as one turn. On Cloudflare timers belong to a
 * request, and isolates are not starved.
 */
export function countTurns(every: After): void {
  host.every = every;
}

/**
 * Resolves when `work` has settled, after `ms` at the latest. `work` may belong to another request, which may never settle it, and code
 * after it must run in this request's context: so this makes a promise of its own.
 */
export async function settledWithin(work: Promise<void>, ms: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const stop = patience.after(ms, resolve);
  void work.finally(resolve);
  await promise;
  stop();
}
