import type { Link } from '../wire/link.ts';
import type { OutboundAttempt } from './outbound-attempt.ts';

/** Fractions of the link's window. A single answer at its widest stays below the second. */
const WINDOW_SHARES = 1 / 2;
const NEARLY_FULL = 7 / 8;

/**
 * Parks answers with stalled readers if the link is under pressure. A complete answer is parked only if the link is
 * nearly full, because its node may be gone and could not send it again.
 */
export function parkStalledResponses(link: Link | undefined, streams: Iterable<OutboundAttempt>, now: number): void {
  const pressure = link?.pressure ?? 0;
  if (pressure < WINDOW_SHARES) return;
  for (const stream of streams) {
    if (stream.stalled(now) && (!stream.complete || pressure > NEARLY_FULL)) stream.park();
  }
}
