import { isSlower } from '../../shared/collections/timer.ts';
import { PieceReader } from '../../shared/upstream/piece-reader.ts';
import { after } from '../after.ts';
import type { HttpRequest } from '../http.ts';

/** An error waits for at most this much of a body that nobody wants, and this long. */
const DISCARD_MAX_BYTES = 64 * 1024 * 1024;
const DISCARD_MAX_MS = 10_000;

/**
 * Reads the rest of a request that is refused and throws it away. An answer that goes out while its client still sends ends the
 * connection with a reset, and most clients then report that instead of the answer. Bounded: beyond it the reset is right.
 */
export async function discardBody(request: HttpRequest): Promise<void> {
  if (request.body === null || request.body.locked) return;
  const reader = new PieceReader(request.body);
  const deadline = Date.now() + DISCARD_MAX_MS;
  try {
    for (let bytes = 0; bytes < DISCARD_MAX_BYTES && Date.now() < deadline; ) {
      const next = reader.read();
      // Of a client that neither sends nor leaves nothing would ever come, and the answer would never go out.
      if (await isSlower(next, deadline - Date.now(), after)) break;
      const value = await next;
      if (value === undefined) return;
      bytes += value.length;
    }
  } catch {
    return; // the client left
  }
  await reader.cancel().catch(() => {});
}
