/**
 * Records when each key was last used. The times are written in batches in the background, so no request waits for the
 * write.
 */
import { sql } from 'drizzle-orm';
import { isRecent } from '../../shared/timing/is-recent.ts';
import type { Env } from '../env.ts';
import { storageHealth } from '../platform/storage/storage-health.ts';
import type { Account } from './account.ts';
import { apiKeys } from './account-tables.ts';
import { database } from './database.ts';
import { sqlFragments } from './sql-fragments.ts';

/** An isolate writes at most once in this interval. */
const FLUSH_MS = 60_000;
/** Maximum keys that wait for the next write. A further key is recorded at a later use. */
const WAITING_MAX = 10_000;
/** Keys per statement, which then has about 50 KiB. */
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

/**
 * Writes `at`, the time of each key's use. The current time would be wrong: the write waits for the next use of any
 * key, which may be days later.
 */
async function flush(env: Pick<Env, 'DB'>, due: [keyId: string, at: number][]): Promise<void> {
  const db = database(env);
  const { greatest, jsonMembers } = sqlFragments(env);
  const lastUsedAt = greatest(sql`coalesce(${apiKeys.lastUsedAt}, 0)`, sql`cast(used.value AS bigint)`);
  for (let from = 0; from < due.length; from += BATCH) {
    const times = Object.fromEntries(due.slice(from, from + BATCH));
    // A failed write is ignored: the key's next use is recorded instead, and nothing depends on the time.
    await db
      .update(apiKeys)
      .set({ lastUsedAt })
      .from(jsonMembers(JSON.stringify(times), 'used'))
      .where(sql`${apiKeys.id} = used.key`)
      .catch(() => {});
  }
}
