import { timesOut } from '../timing/start-timer.ts';
import type { HostClock } from './proxy-host.ts';
import type { BodySource } from './proxy-http-types.ts';

/** After this many bytes, or after DISCARD_MAX_MS, an error response no longer waits for the rest of a refused body. */
const DISCARD_MAX_BYTES = 64 * 1024 * 1024;
const DISCARD_MAX_MS = 10_000;

/**
 * Reads and discards the rest of a refused request's body. If the response ended while the client still sends, the
 * connection would end with a reset, and most clients would report the reset instead of the response. Beyond the limits
 * the reset is accepted.
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
      // Without this limit, a client that neither sends nor disconnects would delay the response forever.
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
