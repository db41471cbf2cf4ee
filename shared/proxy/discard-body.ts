import { timesOut } from '../timing/start-timer.ts';
import type { HostClock } from './proxy-host.ts';
import type { BodySource } from './proxy-http-types.ts';

/** Limits on how much of a refused body an error response waits for, and for how long. */
const DISCARD_MAX_BYTES = 64 * 1024 * 1024;
const DISCARD_MAX_MS = 10_000;

/**
 * Reads and discards the rest of a refused request. A response that is sent while the client still sends ends the
 * connection with a reset, and most clients then report the reset instead of the response. Beyond the limits the reset
 * is accepted.
 */
export async function discardBody(
  body: BodySource,
  { clock }: { clock: Pick<HostClock, 'steadyNow' | 'after'> },
  maxBytes = DISCARD_MAX_BYTES,
): Promise<void> {
  const reader = body.whole === undefined ? body.reader() : undefined;
  if (reader === undefined) return;
  const deadline = clock.steadyNow() + DISCARD_MAX_MS;
  try {
    for (let bytes = 0; bytes < maxBytes && clock.steadyNow() < deadline; ) {
      const next = reader.read();
      // Otherwise a client that neither sends nor disconnects would delay the response forever.
      if (await timesOut(next, deadline - clock.steadyNow(), clock.after)) break;
      const piece = await next;
      if (piece === undefined) return;
      bytes += piece.length;
    }
  } catch {
    return; // The client disconnected.
  }
  await reader.cancel().catch(() => {});
}
