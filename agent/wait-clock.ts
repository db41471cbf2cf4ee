import { startInterval, startTimer } from '../node/timers.ts';
import { AdaptiveTimeout } from '../shared/timing/adaptive-timeout.ts';
import { WaitClock } from '../shared/timing/wait-clock.ts';

/**
 * The clock by which this process waits for others. Deadlines are set and checked by `waitClock.now()`, and waits end
 * by `waitClock.after`.
 */
export const waitClock = new WaitClock({
  now: () => performance.now(),
  after: startTimer,
  every: startInterval,
});

/**
 * Timeout of a gateway's answer to one request: an upgrade, a welcome, a POST. After a gateway stalled, all its agents
 * connect again together, and each answer takes longer than usual. With a fixed timeout all would give up and try
 * again, without end.
 */
export const gatewayTimeout = new AdaptiveTimeout({ leastMs: 10_000, mostMs: 60_000 });
