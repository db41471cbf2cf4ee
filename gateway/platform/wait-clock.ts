import type { StartTimer } from '../../shared/timing/start-timer.ts';
import { WaitClock, type WaitClockHost } from '../../shared/timing/wait-clock.ts';
import { startTimer } from './start-timer.ts';
import { steadyNow } from './steady-clock.ts';

const host: WaitClockHost & { every: StartTimer | undefined } = { now: steadyNow, after: startTimer, every: undefined };

/**
 * The clock for waiting for other processes. Deadlines are set and checked with `now`, waits are ended with `after`.
 */
export const waitClock = new WaitClock(host);

/**
 * Called by a host whose process lives on between requests: from now on, a late turn of the event loop counts as one
 * turn, not as the time that it took. Not called on Cloudflare, where timers belong to a request and isolates are not
 * starved.
 */
export function enableTurnClock(every: StartTimer): void {
  host.every = every;
}

/**
 * Resolves when `work` has settled, at the latest after `ms`. `work` may belong to another request, which may never
 * settle it, and the code that follows must run in this request's context. So this function creates its own promise.
 */
export async function waitAtMost(work: Promise<void>, ms: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const stop = waitClock.after(ms, resolve);
  work.then(resolve, () => resolve());
  await promise;
  stop();
}
