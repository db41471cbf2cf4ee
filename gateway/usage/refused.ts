/**
 * Requests of known accounts that no engine saw: they too are on record. Written in batches beside requests, never in their way;
 * what is refused alike within a second is one row that says how many, so that a flood at a closed door costs nobody anything.
 */

import { reachesNoEngine } from '../../shared/asking/settlement.ts';
import { ApiError, toApiError } from '../../shared/openai/errors.ts';
import type { Account } from '../accounts/account.ts';
import type { Env } from '../env.ts';
import { NO_SESSION, shardOf, type UsageRow } from './row.ts';

const TOGETHER_MS = 1_000;
/** The request whose context carried the last batch may have been ended with it. */
const OVERDUE_MS = 5_000;
/** Kinds of refusals per second; what is beyond them is not recorded one by one, and the log says how many. */
const WAITING_MAX = 1_000;

type Context = { waitUntil(work: Promise<unknown>): void };

/** What became known of a request before it ended; filled in as it goes on. */
export interface Sighting {
  requestId: string;
  /** Milliseconds since the epoch. */
  startedAt: number;
  account?: Account;
  untracked?: boolean;
  /** Id in the endpoint table. */
  endpoint?: number;
  model?: string;
  streamed?: boolean;
}

const waiting = new Map<string, UsageRow>();
let missed = 0;
let begunAt = Number.NEGATIVE_INFINITY;

/** `error` ended the request. Nothing is recorded of strangers, of who opted out, and where an engine's record tells of it. */
export function recordRefusal(sighting: Sighting, error: unknown, env: Env, ctx: Context, now: number): void {
  const { account } = sighting;
  if (account === undefined || sighting.untracked || !reachedNobody(error)) return;
  const { code, status } = toApiError(error);
  const row = rowOf(sighting, account, { code, status }, now);
  const name = JSON.stringify([shardOf(now), row.key, row.project, row.model, row.endpoint, code, row.traced]);
  const alike = waiting.get(name);
  if (alike !== undefined) alike.times = (alike.times ?? 1) + 1;
  else if (waiting.size < WAITING_MAX) waiting.set(name, row);
  else missed++;
  if (now - begunAt < OVERDUE_MS) return;
  begunAt = now;
  ctx.waitUntil(flushSoon(env));
}

/** An attempt that may have reached its engine has its own record. */
function reachedNobody(error: unknown): boolean {
  const cause = error instanceof ApiError ? error.cause : error;
  if (!(cause instanceof Error) || cause.name !== 'PathError' || !('code' in cause)) return true;
  return reachesNoEngine(String(cause.code));
}

function rowOf(
  sighting: Sighting,
  { keyId, userId = '', projectId = '', traced }: Account,
  { code, status }: { code: string; status: number },
  now: number,
): UsageRow {
  const { requestId: request, endpoint = 0, model = '', streamed = false, startedAt } = sighting;
  const nothing = { prompt: 0, completion: 0, cached: 0, reasoning: 0, firstMs: 0, bytes: 0 };
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2));
  const stream = (high & 0x1fffff) * 2 ** 32 + low;
  const who = { key: keyId === 'bootstrap' ? '' : keyId, user: userId, project: projectId, provider: '', traced };
  const what = { request, attempt: 0, model, endpoint, streamed, status, error: code, totalMs: now - startedAt };
  const ended = { aborted: false, estimated: false, complete: false };
  return { session: NO_SESSION, stream, at: now, ...who, ...what, ...nothing, ...ended };
}

async function flushSoon(env: Env): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, TOGETHER_MS));
  begunAt = Number.NEGATIVE_INFINITY;
  const due = [...waiting];
  waiting.clear();
  if (missed > 0) console.error(`${missed} refused requests are not on record: too many kinds at once`);
  missed = 0;
  const shards = Map.groupBy(due, ([, row]) => shardOf(row.at));
  await Promise.all(
    [...shards].map(async ([shard, rows]) => {
      try {
        await env.USAGE.getByName(shard).add(rows.map(([, row]) => row));
      } catch {
        // With the next refusal's batch; said twice, a row counts once.
        for (const [, row] of rows) if (waiting.size < WAITING_MAX) waiting.set(String(row.stream), row);
      }
    }),
  );
}
