import type { AgentParts } from './agent-parts.ts';
import { type Deferred, settlesWithin } from './settles-within.ts';

/** Maximum wait for the upload of the log's end, which is small. */
const UPLOAD_MS = 2_000;

/**
 * Uploads the last output of an engine that ends while the agent continues. `ending` ends the wait. Call before LEFT,
 * because gateways accept nothing from a session that has left.
 */
export async function uploadLogTail(
  { sessions }: AgentParts,
  tail: Uint8Array | undefined,
  ending: Pick<Deferred<unknown>, 'promise'>,
): Promise<void> {
  if (sessions === undefined || tail === undefined || tail.length === 0) return;
  const given = new AbortController();
  await settlesWithin(UPLOAD_MS, Promise.race([sessions.leaveLogTail(tail, given.signal), ending.promise]));
  given.abort();
}
