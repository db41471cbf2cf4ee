import type { Link } from '../wire/link.ts';
import type { OutboundAttempt } from './outbound-attempt.ts';

/**
 * Shares of the link's window above which answers are parked: WINDOW_SHARES for answers that are incomplete,
 * NEARLY_FULL for complete ones. A single answer with the largest window stays below NEARLY_FULL.
 */
const WINDOW_SHARES = 1 / 2;
const NEARLY_FULL = 7 / 8;

/**
 * Parks answers with stalled readers when the link's window fills up. A complete answer is parked only if the window is
 * nearly full, because its node may have left, and then could not send the answer again.
 */
export function parkStalledResponses(link: Link | undefined, streams: Iterable<OutboundAttempt>, now: number): void {
  const pressure = link?.pressure ?? 0;
  if (pressure < WINDOW_SHARES) return;
  for (const stream of streams) {
    if (stream.stalled(now) && (!stream.complete || pressure > NEARLY_FULL)) stream.park();
  }
}
