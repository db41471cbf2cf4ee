import { ApiError } from '../../../shared/openai/api-errors.ts';

/** Maximum realtime sessions of one process. Each may hold a megabyte in messages. */
const SESSIONS_MAX = 512;
/** Maximum realtime sessions of one key holder, so that no holder can take all places. */
const SESSIONS_PER_HOLDER_MAX = 64;

/** Number of open sessions by key holder; at most SESSIONS_MAX entries. */
const held = new Map<string, number>();
let open = 0;

/**
 * Takes a place for a session of the key's holder. Call the returned function once, when the session is over.
 * @throws ApiError 429, 503
 */
export function takeSessionPlace(holder: string): () => void {
  const own = held.get(holder) ?? 0;
  if (own >= SESSIONS_PER_HOLDER_MAX) {
    const message = `Your keys already have their maximum of ${SESSIONS_PER_HOLDER_MAX} realtime sessions.`;
    throw new ApiError('rate_limit_exceeded', message);
  }
  if (open >= SESSIONS_MAX)
    throw new ApiError('server_is_overloaded', `This gateway has its maximum of ${SESSIONS_MAX} realtime sessions.`);
  open++;
  held.set(holder, own + 1);
  return () => {
    open--;
    const left = (held.get(holder) ?? 1) - 1;
    if (left > 0) held.set(holder, left);
    else held.delete(holder);
  };
}
