import { AdaptiveTimeout } from '../shared/timing/adaptive-timeout.ts';
import { WaitClock } from '../shared/timing/wait-clock.ts';

/** How long this process waits for others. Deadlines are set and judged by `patience.now()`, waits are ended by `patience.after`. */
export const waitClock = new WaitClock({
  now: () => performance.now(),
  after: (ms, ring) => {
    const timer = setTimeout(ring, ms);
    return () => clearTimeout(timer);
  },
  every: (ms, ring) => {
    const timer = setInterval(ring, ms).unref();
    return () => clearInterval(timer);
  },
});

/**
 * A gateway's answer to one request: an upgrade, a welcome, a POST. When a gateway stood still all its agents come at once, and then each
 * answer takes longer than usual: without the growth they would all give up and come again, without end.
 */
export const gatewayTimeout = new AdaptiveTimeout({ leastMs: 10_000, mostMs: 60_000 });
