/**
 * Records when each key was last used. Written in batches after the response of some request, so no request waits for
 * it.
 */
import { isRecent } from '../../shared/collections/is-recent.ts';
import type { Env } from '../env.ts';
import { storageHealth } from '../platform/storage/health.ts';
import type { Account } from './account.ts';

/** An isolate writes at most once in this time. */
const FLUSH_MS = 60_000;
/** Bounds the keys that wait for the next write. Keys above it are recorded with a later use. */
const WAITING_MAX = 10_000;
/** Keys of one statement, 50 KiB. */
const BATCH = 1_000;

const waiting = new Map<string, number>();
let flushedAt = Number.NEGATIVE_INFINITY;

export function recordLastUse(
  { keyId, userId }: Pick<Account, 'keyId' | 'userId'>,
  env: Pick<Env, 'DB'>,
  ctx: { waitUntil(work: Promise<unknown>): void },
  now: number,
): void {
  if (keyId === userId || keyId === 'bootstrap') return;
  if (waiting.size < WAITING_MAX || waiting.has(keyId)) waiting.set(keyId, now);
  if (isRecent(FLUSH_MS, flushedAt, now) || storageHealth.failure !== undefined) return;
  flushedAt = now;
  const due = [...waiting];
  waiting.clear();
  ctx.waitUntil(flush(env, due));
}

/** Each key has its own time: a key that is used once may wait for days until another key is used. */
async function flush(env: Pick<Env, 'DB'>, due: [keyId: string, at: number][]): Promise<void> {
  const write = env.DB.prepare(`UPDATE api_keys SET last_used_at = max(coalesce(last_used_at, 0), used.value)
    FROM json_each(?) AS used WHERE api_keys.id = used.key`);
  for (let from = 0; from < due.length; from += BATCH) {
    const times = Object.fromEntries(due.slice(from, from + BATCH));
    // A time that is not written is replaced by the next use: nothing depends on it.
    await write
      .bind(JSON.stringify(times))
      .run()
      .catch(() => {});
  }
}
