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
