import { isSlower } from '../collections/timer.ts';
import type { Clock } from './host.ts';
import type { BodySource } from './message.ts';

/** An error waits for at most this much of a body that nobody wants, and this long. */
const DISCARD_MAX_BYTES = 64 * 1024 * 1024;
const DISCARD_MAX_MS = 10_000;

/**
 * Reads the rest of a request that is refused and throws it away. A response that goes out while its client still sends ends the connection
 * with a reset, and most clients then report that instead of the response. Beyond the bounds the
 * reset is right.
 */
export async function discardBody(
  body: BodySource,
  { clock }: { clock: Pick<Clock, 'steadyNow' | 'after'> },
  maxBytes = DISCARD_MAX_BYTES,
): Promise<void> {
  const reader = body.whole === undefined ? body.reader() : undefined;
  if (reader === undefined) return;
  const deadline = clock.steadyNow() + DISCARD_MAX_MS;
  try {
    for (let bytes = 0; bytes < maxBytes && clock.steadyNow() < deadline; ) {
      const next = reader.read();
      // Of a client that neither sends nor leaves nothing would ever come, and the response would never go out.
      if (await isSlower(next, deadline - clock.steadyNow(), clock.after)) break;
      const piece = await next;
      if (piece === undefined) return;
      bytes += piece.length;
    }
  } catch {
    return; // the client left
  }
  await reader.cancel().catch(() => {});
}
