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
 * A host calls this if its process outlives a request. From then on `waitClock` advances by one turn if a turn of the
 * event loop is late, however late it is. So a process that gets too little processor time does not end waits too
 * early. Cloudflare needs no such clock: isolates always get processor time, and timers there end with their request.
 */
export function enableTurnClock(every: StartTimer): void {
  host.every = every;
}

/**
 * Resolves when `work` has settled, at the latest after `ms`. `work` may belong to another request. The runtime may
 * never settle such a promise, and would continue its callers in the context of the other request. So this function
 * creates a promise for this request.
 */
export async function waitAtMost(work: Promise<void>, ms: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const stop = waitClock.after(ms, resolve);
  work.then(resolve, () => resolve());
  await promise;
  stop();
}
