import { HolderPlaces } from '../../http/holder-places.ts';

/** Realtime sessions of one process. Each may hold a megabyte in messages. */
const sessions = new HolderPlaces({ of: 'realtime sessions', most: 512, mostPerHolder: 64 });

/**
 * Takes a place for a session of the key's holder. Call the returned function once, when the session is over.
 * @throws ApiError 429, 503
 */
export function takeSessionPlace(holder: string): () => void {
  return sessions.take(holder);
}
