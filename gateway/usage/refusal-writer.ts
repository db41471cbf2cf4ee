/**
 * Records requests of known accounts that reached no engine, because they were refused or because the client
 * disconnected while they waited. The records are written in batches, and no request waits for a write. Identical
 * refusals within a second become one row with their number and the means of their durations, so that a flood of
 * refused requests costs little.
 */

import { AttemptError } from '../../shared/attempts/attempt-error.ts';
import { ApiError, toApiError } from '../../shared/openai/api-errors.ts';
import { LEFT_ERROR, LEFT_STATUS } from '../../shared/proxy/client-disconnect.ts';
import { endsBeforeEngine } from '../../shared/routing/retry-policy.ts';
import { isRecent } from '../../shared/timing/is-recent.ts';
import type { Env } from '../env.ts';
import type { LoggedRequest } from '../observe/request-log.ts';
import { NO_SESSION, type UsageRow, usageShardOf } from './usage-row.ts';

const WRITE_INTERVAL_MS = 1_000;
/**
 * After this time a write is overdue and another write starts: the runtime may have stopped the first one with the
 * request in which it ran.
 */
const OVERDUE_MS = 5_000;
/**
 * Maximum rows that wait, one per kind of refusal. Further kinds are not recorded, and the log reports their number.
 */
const WAITING_MAX = 1_000;

type Context = { waitUntil(work: Promise<unknown>): void };

/** Collects rows, so that they are written together. Each write runs in the context of one request. */
export class RefusalWriter {
  readonly #waiting = new Map<string, UsageRow>();
  #missed = 0;
  #begunAt = Number.NEGATIVE_INFINITY;

  add(row: UsageRow, env: Env, ctx: Context): void {
    const { at, key, project, model, endpoint, error, traced } = row;
    const name = JSON.stringify([usageShardOf(at), key, project, model, endpoint, error, traced]);
    const alike = this.#waiting.get(name);
    if (alike !== undefined) merge(alike, row);
    else this.#wait(name, row);
    if (isRecent(OVERDUE_MS, this.#begunAt, at)) return;
    this.#begunAt = at;
    ctx.waitUntil(this.#flushSoon(env));
  }

  #wait(name: string, row: UsageRow): void {
    if (this.#waiting.size < WAITING_MAX) this.#waiting.set(name, row);
    else this.#missed += row.times ?? 1;
  }

  async #flushSoon(env: Env): Promise<void> {
    await new Promise((resolve) => setTimeout(resolve, WRITE_INTERVAL_MS));
    this.#begunAt = Number.NEGATIVE_INFINITY;
    const due = [...this.#waiting.values()].map(rounded);
    this.#waiting.clear();
    if (this.#missed > 0)
      console.error(`${this.#missed} requests that no engine received were not recorded: too many different kinds`);
    this.#missed = 0;
    const shards = Map.groupBy(due, ({ at }) => usageShardOf(at));
    await Promise.all(
      [...shards].map(async ([shard, rows]) => {
        try {
          await env.USAGE.getByName(shard).add(rows);
        } catch {
          // The rows are sent with the next batch; a repeated row counts once.
          for (const row of rows) this.#wait(String(row.stream), row);
        }
      }),
    );
  }
}

/**
 * Adds `row` to `into`. Totals multiply durations by `times`, so `into` gets the means: with the first row's durations,
 * one request that waited long would count as many.
 */
function merge(into: UsageRow, row: UsageRow): void {
  const times = (into.times ?? 1) + 1;
  const mean = (of: number, one: number) => of + (one - of) / times;
  into.totalMs = mean(into.totalMs ?? 0, row.totalMs ?? 0);
  const { queueMs = 0 } = into;
  if (queueMs > 0 || row.queueMs !== undefined) into.queueMs = mean(queueMs, row.queueMs ?? 0);
  into.times = times;
}

function rounded(row: UsageRow): UsageRow {
  const queued = row.queueMs === undefined ? {} : { queueMs: Math.round(row.queueMs) };
  return { ...row, totalMs: Math.round(row.totalMs ?? 0), ...queued };
}

const ofIsolate = new RefusalWriter();

/**
 * Records that `error` ended the request, after `queuedMs` in queues. Nothing is recorded for unauthenticated clients,
 * for accounts that opted out, or if an engine's record contains the request.
 */
export function recordRefusal(sighting: LoggedRequest, error: unknown, queuedMs: number, env: Env, ctx: Context): void {
  if (!reachedNobody(error)) return;
  const { code, status } = toApiError(error);
  const row = rowOf(sighting, { code, status, queuedMs }, Date.now());
  if (row !== undefined) ofIsolate.add(row, env, ctx);
}

/**
 * Returns the record for the case that the client disconnects while its request waits for a node; `abandonedRow` then
 * completes it.
 */
export function abandonedRowDraft(sighting: LoggedRequest): UsageRow | undefined {
  const row = rowOf(sighting, { code: LEFT_ERROR, status: LEFT_STATUS, queuedMs: 0 }, sighting.startedAt);
  return row && { ...row, aborted: true };
}

/** Completes the draft: the client disconnected after `queuedMs` in queues. */
export function abandonedRow(row: UsageRow, queuedMs: number, now: number): UsageRow {
  return { ...row, at: now, totalMs: now - row.at, queueMs: Math.round(queuedMs) };
}

/** True if no attempt reached an engine. An attempt that may have reached one has its own usage record. */
function reachedNobody(error: unknown): boolean {
  const cause = error instanceof ApiError ? error.cause : error;
  return !(cause instanceof AttemptError) || endsBeforeEngine(cause.code);
}

function rowOf(
  { caller, ...seen }: LoggedRequest,
  { code, status, queuedMs }: { code: string; status: number; queuedMs: number },
  now: number,
): UsageRow | undefined {
  if (caller === undefined || caller.untracked) return undefined;
  const { keyId, userId = '', projectId = '', traced } = caller.account;
  const { clientRequestId: request, endpoint = 0, model = '', streamed = false, startedAt } = seen;
  const nothing = { prompt: 0, completion: 0, cached: 0, reasoning: 0, firstMs: 0, bytes: 0 };
  const [high = 0, low = 0] = crypto.getRandomValues(new Uint32Array(2));
  const stream = (high & 0x1fffff) * 2 ** 32 + low;
  const who = { key: keyId === 'bootstrap' ? '' : keyId, user: userId, project: projectId, provider: '', traced };
  const what = { request, attempt: 0, model, endpoint, streamed, status, error: code, totalMs: now - startedAt };
  const ended = { aborted: false, estimated: false, complete: false };
  const queued = queuedMs > 0 ? { queueMs: Math.round(queuedMs) } : {};
  return { session: NO_SESSION, stream, at: now, ...who, ...what, ...nothing, ...ended, ...queued };
}
