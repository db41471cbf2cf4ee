/** When each key was used last, to the minute: written in batches, beside requests, never in their way. */
import { inArray, sql } from 'drizzle-orm';
import type { Env } from '../env.ts';
import type { Account } from './account.ts';
import { database } from './database.ts';
import { apiKeys } from './schema.ts';

/** An isolate writes once in so long. */
const FLUSH_MS = 60_000;
/** Keys remembered until then; what is beyond them is remembered with the next use. */
const WAITING_MAX = 10_000;
/** D1 binds 100 parameters per statement. */
const BATCH = 90;

const waiting = new Map<string, number>();
let flushedAt = Number.NEGATIVE_INFINITY;

export function touch(
  { keyId, userId }: Pick<Account, 'keyId' | 'userId'>,
  env: Pick<Env, 'DB'>,
  ctx: { waitUntil(work: Promise<unknown>): void },
  now: number,
): void {
  if (keyId === userId || keyId === 'bootstrap') return;
  if (waiting.size < WAITING_MAX || waiting.has(keyId)) waiting.set(keyId, now);
  if (now - flushedAt < FLUSH_MS) return;
  flushedAt = now;
  const due = [...waiting.keys()];
  waiting.clear();
  ctx.waitUntil(flush(env, due, now));
}

async function flush(env: Pick<Env, 'DB'>, due: string[], now: number): Promise<void> {
  const db = database(env);
  for (let from = 0; from < due.length; from += BATCH) {
    const ids = due.slice(from, from + BATCH);
    const latest = sql`max(coalesce(${apiKeys.lastUsedAt}, 0), ${now})`;
    // A time that is not written is written a minute later: nothing waits for it.
    await db
      .update(apiKeys)
      .set({ lastUsedAt: latest })
      .where(inArray(apiKeys.id, ids))
      .catch(() => {});
  }
}
