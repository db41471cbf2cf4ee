/** Usage totals, as far as each caller may see them, and the trace export for research. */
import { and, eq, gte, lte, type SQL, sql } from 'drizzle-orm';
import type { SQLiteColumn } from 'drizzle-orm/sqlite-core';
import * as z from 'zod';
import { fromBase64url, toBase64url } from '../../../shared/lattice/base64url.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { database, queryOrUnavailable, reportDatabase } from '../../accounts/database.ts';
import { installationSecret } from '../../accounts/installation-secret.ts';
import { modelSettings } from '../../accounts/model-tables.ts';
import { sqlFragments } from '../../accounts/sql-fragments.ts';
import { traceStream } from '../../usage/trace-export.ts';
import { TRACE_FORMATS } from '../../usage/trace-line.ts';
import { usageTotals } from '../../usage/usage-tables.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';

const GROUPS = ['day', 'project', 'user', 'key', 'model', 'provider', 'peer'] as const;
type Group = (typeof GROUPS)[number];
/** Groups that a provider may use. They do not show which users, keys and projects its nodes serve. */
const PROVIDER_GROUPS: readonly Group[] = ['day', 'model', 'provider', 'peer'];
const { day, project, user, key, model, provider } = usageTotals;
/** The peer institution of a row; see `peerKey`. */
const peer = sql<string>`CASE WHEN substr(${key}, 1, 5) = 'peer:' THEN substr(${key}, 6) ELSE '' END`;
type GroupColumn = SQLiteColumn | SQL<string>;
const GROUP_COLUMNS: Readonly<Record<Group, GroupColumn>> = { day, project, user, key, model, provider, peer };
const ROWS_MAX = 10_000;
/** Rows of one page, about half a megabyte. */
const PAGE_ROWS = 2_000;
const DAY_MS = 86_400_000;
/** Maximum characters of a cursor: a model's name may have 1,024 characters, and JSON may need six bytes for each. */
const CURSOR_MAX = 12_288;

const GROUP_LIST = new RegExp(`^(${GROUPS.join('|')})(,(${GROUPS.join('|')}))*$`);
const daySchema = z.iso.date();
const filterText = z.string().max(256).optional();
const usageQuery = z.strictObject({
  /** First and last day, UTC, both included. Default: the last 30 days. */
  from: daySchema.optional(),
  to: daySchema.optional(),
  group_by: z
    .string()
    .regex(GROUP_LIST, `must be names of ${GROUPS.join(', ')}, separated by commas`)
    .default('day')
    .transform((text) => [...new Set(text.split(','))])
    .pipe(z.array(z.enum(GROUPS)).min(1)),
  limit: z.coerce.number().int().min(1).max(ROWS_MAX).default(PAGE_ROWS),
  /** The cursor `next` of the previous page. */
  after: z.string().max(CURSOR_MAX).optional(),
  project: filterText,
  user: filterText,
  key: filterText,
  model: filterText,
  provider: filterText,
  /** Name of a peer institution: only its requests at this institution's nodes. */
  peer: filterText,
});
const totalSchema = z.object({
  day: z.string().optional(),
  project: z.string().optional(),
  user: z.string().optional(),
  key: z.string().optional(),
  model: z.string().optional(),
  provider: z.string().optional(),
  /** Peer institution that sent the requests; empty: this institution. */
  peer: z.string().optional(),
  requests: z.number(),
  failed: z.number(),
  aborted: z.number(),
  estimated: z.number(),
  prompt_tokens: z.number(),
  completion_tokens: z.number(),
  cached_tokens: z.number(),
  reasoning_tokens: z.number(),
  /** Mean time to first token as clients saw it, including waits in queues. Null: no request had a first token. */
  mean_first_token_ms: z.number().nullable(),
  /** Mean time from the node's receipt of the request to the first token. Null: no request had a first token. */
  mean_engine_first_token_ms: z.number().nullable(),
  mean_queue_ms: z.number(),
  /**
   * Mean duration of requests. Lines of batches are not counted, because their duration is not known. Null: there are
   * no other requests.
   */
  mean_total_ms: z.number().nullable(),
  /** GPU time of the requests in seconds of one GPU. Requests at nodes that published no GPUs add nothing. */
  gpu_seconds: z.number(),
  /** Seconds of audio that were transcribed, translated or spoken. */
  audio_seconds: z.number(),
  /** Images that were generated. */
  images: z.number(),
});

const timeSchema = z.iso.datetime({ offset: true });
const traceQuery = z.strictObject({
  from: timeSchema,
  to: timeSchema,
  format: z.enum(TRACE_FORMATS).default('ndjson'),
});
const TRACE_MAX_MS = 31 * DAY_MS;

export const usageRoutes: readonly AdminRoute[] = [
  route({
    role: 'consumer',
    scope: 'usage',
    method: 'get',
    path: '/usage',
    summary:
      'List usage totals. Operators see all usage, providers the usage of their nodes, other users their own usage.',
    query: usageQuery,
    answer: z.object({
      object: z.literal('list'),
      data: z.array(totalSchema),
      has_more: z.boolean(),
      next: z.string().nullable(),
    }),
    run: readTotals,
  }),
  route({
    role: 'operator',
    method: 'get',
    path: '/trace',
    summary:
      'Export the workload trace: the requests that the setting `trace` or their projects include, without prompts, responses or names.',
    query: traceQuery,
    run: readTrace,
  }),
];

async function readTotals(call: AdminCall<unknown, z.infer<typeof usageQuery>>): Promise<object> {
  const { env, query, now } = call;
  const mine = own(call);
  const to = query.to ?? new Date(now).toISOString().slice(0, 10);
  const from = query.from ?? new Date(Date.parse(to) - 29 * DAY_MS).toISOString().slice(0, 10);
  const filters = GROUPS.flatMap((name) => {
    const wanted = name === 'day' ? undefined : query[name];
    return wanted === undefined ? [] : [sql`${GROUP_COLUMNS[name]} = ${wanted}`];
  });
  const { least, greatest, total } = sqlFragments(env);
  const sum = (column: SQLiteColumn) =>
    sql<number>`cast(${least(total(column), sql.raw(String(Number.MAX_SAFE_INTEGER)))} as bigint)`;
  const meanOf = (column: SQLiteColumn, counted: SQLiteColumn) =>
    sql<number | null>`round(${total(column)} / nullif(${total(counted)}, 0))`;
  const groups = query.group_by.map((name) => GROUP_COLUMNS[name]);
  const beyond = query.after === undefined ? undefined : after(query.after, groups);
  const rows = await queryOrUnavailable(
    reportDatabase(env)
      .select({
        ...Object.fromEntries(query.group_by.map((name) => [name, GROUP_COLUMNS[name]])),
        requests: sum(usageTotals.requests),
        failed: sum(usageTotals.failed),
        aborted: sum(usageTotals.aborted),
        estimated: sum(usageTotals.estimated),
        prompt_tokens: sum(usageTotals.prompt),
        completion_tokens: sum(usageTotals.completion),
        cached_tokens: sum(usageTotals.cached),
        reasoning_tokens: sum(usageTotals.reasoning),
        mean_first_token_ms: meanOf(usageTotals.firstTokenMs, usageTotals.firstTokens),
        mean_engine_first_token_ms: meanOf(usageTotals.engineFirstTokenMs, usageTotals.firstTokens),
        mean_queue_ms: sql<number>`round(${total(usageTotals.queueMs)} / ${greatest(1, total(usageTotals.requests))})`,
        mean_total_ms: meanOf(usageTotals.totalMs, usageTotals.timed),
        gpu_seconds: sql<number>`round(${total(usageTotals.gpuMs)} / 1000)`,
        audio_seconds: sql<number>`${total(usageTotals.audioMs)} / 1000`,
        images: sum(usageTotals.images),
      })
      .from(usageTotals)
      .where(and(gte(usageTotals.day, from), lte(usageTotals.day, to), mine, beyond, ...filters))
      .groupBy(...groups)
      .orderBy(...groups)
      .limit(query.limit + 1),
  );
  const data: Record<string, unknown>[] = rows.slice(0, query.limit);
  const last = rows.length > query.limit ? data.at(-1) : undefined;
  const next = last && cursorOf(query.group_by.map((name) => String(last[name])));
  return { object: 'list', data, has_more: last !== undefined, next: next ?? null };
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();
const cursorSchema = z.array(z.string());

/** Returns the cursor of a page: the values of its last group. */
function cursorOf(values: readonly string[]): string {
  return toBase64url(encoder.encode(JSON.stringify(values)));
}

/** Selects the rows after a page. @throws ApiError 422 if the cursor is from another query */
function after(cursor: string, groups: readonly GroupColumn[]): SQL {
  const values = readCursor(cursor);
  if (values?.length !== groups.length) {
    throw new ApiError('unprocessable_content', 'after: is not a `next` of the same query.', { param: 'after' });
  }
  const bound = values.map((value) => sql`${value}`);
  return sql`(${sql.join([...groups], sql`, `)}) > (${sql.join(bound, sql`, `)})`;
}

function readCursor(cursor: string): string[] | undefined {
  try {
    return cursorSchema.safeParse(JSON.parse(decoder.decode(fromBase64url(cursor, CURSOR_MAX)))).data;
  } catch {
    return undefined;
  }
}

/**
 * Selects the rows that the caller may see.
 * @throws ApiError 403 if the query would show a provider which consumers it serves
 */
function own({ account, query }: AdminCall<unknown, z.infer<typeof usageQuery>>): SQL | undefined {
  const { role, provider, userId, keyId } = account;
  if (role === 'operator') return undefined;
  if (role === 'provider' && provider !== undefined) {
    const asked = [...query.group_by, ...GROUPS.filter((name) => name !== 'day' && query[name] !== undefined)];
    if (asked.every((name) => PROVIDER_GROUPS.includes(name))) return eq(usageTotals.provider, provider);
    throw new ApiError(
      'permission_denied',
      'A provider may group and filter its usage only by day, model and provider.',
    );
  }
  return userId === undefined ? eq(usageTotals.key, keyId) : eq(usageTotals.user, userId);
}

async function readTrace({ env, query }: AdminCall<unknown, z.infer<typeof traceQuery>>): Promise<Response> {
  const [from, to] = [Date.parse(query.from), Date.parse(query.to)];
  if (!(from < to) || to - from > TRACE_MAX_MS) {
    throw new ApiError('unprocessable_content', 'from and to: must be in this order and at most 31 days apart.');
  }
  const [secret, hidden] = await Promise.all([
    installationSecret(env),
    queryOrUnavailable(
      database(env)
        .select({ model: modelSettings.model, aliases: modelSettings.aliases })
        .from(modelSettings)
        .where(eq(modelSettings.private, true)),
    ),
  ]);
  // A refused request may be recorded under the alias that it used, so aliases of private models are hidden too.
  const privateModels = new Set(hidden.flatMap(({ model, aliases }) => [model, ...(aliases ?? [])]));
  const body = traceStream(env, { from, to, format: query.format, secret, privateModels });
  const type = query.format === 'csv' ? 'text/csv; charset=utf-8' : 'application/x-ndjson';
  return new Response(body, { headers: { 'content-type': type, 'cache-control': 'no-store' } });
}
