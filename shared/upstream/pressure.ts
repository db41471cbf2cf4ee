import type { Link } from '../wire/link.ts';
import type { UpstreamStream } from './upstream-stream.ts';

/** Parts of the link's window; one answer alone, at its widest, is below the second. */
const PRESSED = 1 / 2;
const NEARLY_FULL = 7 / 8;

/**
 * Parks answers with stalled readers when the link is under pressure. A complete answer is parked only when the link is nearly full: its
 * node may be gone and could not send it again.
 */
export function relievePressure(link: Link | undefined, streams: Iterable<UpstreamStream>, now: number): void {
  const pressure = link?.pressure ?? 0;
  if (pressure < PRESSED) return;
  for (const stream of streams) {
    if (stream.stalled(now) && (!stream.complete || pressure > NEARLY_FULL)) stream.park();
  }
}
