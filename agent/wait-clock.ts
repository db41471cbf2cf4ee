import { startInterval, startTimer } from '../node/timers.ts';
import { AdaptiveTimeout } from '../shared/timing/adaptive-timeout.ts';
import { WaitClock } from '../shared/timing/wait-clock.ts';

/**
 * The clock for waits on other machines and processes. Deadlines are set and checked by `waitClock.now()`, and waits
 * end by `waitClock.after`.
 */
export const waitClock = new WaitClock({
  now: () => performance.now(),
  after: startTimer,
  every: startInterval,
});

/**
 * Timeout of a gateway's answer to one request: an upgrade, a welcome, a POST. It grows after answers that were late:
 * when a gateway has stalled, all its agents connect again together, and with a fixed timeout all of them would give up
 * and try again, without end.
 */
export const gatewayTimeout = new AdaptiveTimeout({ leastMs: 10_000, mostMs: 60_000 });
