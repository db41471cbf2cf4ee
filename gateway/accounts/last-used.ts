/** When each key was used last, to the minute: written in batches, beside requests, never in their way. */
import type { Env } from '../env.ts';
import { storageHealth } from '../platform/storage/health.ts';
import type { Account } from './account.ts';

/** An isolate writes once in so long. */
const FLUSH_MS = 60_000;
/** Keys remembered until then; what is beyond them is remembered with the next use. */
const WAITING_MAX = 10_000;
/** Of one statement: 50 KiB. */
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
  if (now - flushedAt < FLUSH_MS || storageHealth.failure !== undefined) return;
  flushedAt = now;
  const due = [...waiting];
  waiting.clear();
  ctx.waitUntil(flush(env, due));
}

/** Each at its own time: a key that is used once may wait for days until another one is. */
async function flush(env: Pick<Env, 'DB'>, due: [keyId: string, at: number][]): Promise<void> {
  const write = env.DB.prepare(`UPDATE api_keys SET last_used_at = max(coalesce(last_used_at, 0), used.value)
    FROM json_each(?) AS used WHERE api_keys.id = used.key`);
  for (let from = 0; from < due.length; from += BATCH) {
    const times = Object.fromEntries(due.slice(from, from + BATCH));
    // A time that is not written is written with the next use: nothing waits for it.
    await write
      .bind(JSON.stringify(times))
      .run()
      .catch(() => {});
  }
}
