/**
 * Usage totals in D1 by day, project, user, key, model and provider. Rows are added in batches; each batch counts once.
 */
import { and, eq, sql } from 'drizzle-orm';
import { database } from '../accounts/database.ts';
import { sqlFragments } from '../accounts/sql-fragments.ts';
import type { Env } from '../env.ts';
import type { UsageRow } from './usage-row.ts';
import { usageBatches, usageTotals } from './usage-tables.ts';

export type UsageTotal = typeof usageTotals.$inferSelect;

export const USAGE_COUNTERS = [
  'requests',
  'failed',
  'aborted',
  'estimated',
  'prompt',
  'completion',
  'cached',
  'reasoning',
  'firstTokens',
  'firstTokenMs',
  'engineFirstTokenMs',
  'queueMs',
  'timed',
  'totalMs',
  'gpuMs',
  'audioMs',
  'images',
] as const;

/** Returns the total of one row; `sign` −1 subtracts it again. */
export function usageTotalOf(row: UsageRow, sign: 1 | -1 = 1): UsageTotal {
  const { project, user, key, model, provider } = row;
  const times = row.times ?? 1;
  const firstMs = row.firstMs ?? 0;
  const queueMs = row.queueMs ?? 0;
  const of = (count: number | boolean) => sign * times * Number(count);
  return {
    day: new Date(row.at).toISOString().slice(0, 10),
    project,
    user,
    key,
    model,
    provider,
    requests: of(1),
    failed: of(row.status !== null && (row.status < 200 || row.status >= 400)),
    aborted: of(row.aborted),
    estimated: of(row.estimated),
    prompt: of(row.prompt),
    completion: of(row.completion),
    cached: of(row.cached),
    reasoning: of(row.reasoning),
    firstTokens: of(firstMs > 0),
    firstTokenMs: of(firstMs > 0 ? queueMs + firstMs : 0),
    engineFirstTokenMs: of(firstMs),
    queueMs: of(queueMs),
    timed: of(row.totalMs !== null),
    totalMs: of(row.totalMs ?? 0),
    gpuMs: of(Math.round(row.gpuMs ?? 0)),
    audioMs: of(row.audioMs ?? 0),
    images: of(row.images ?? 0),
  };
}

/**
 * Parses a total that waited in an object's storage. Totals of an earlier version have no `timed`: all their requests
 * count as timed, as they did then. They have neither `gpuMs` nor audio and images.
 */
export function readTotal(text: string): UsageTotal {
  const total: UsageTotal = JSON.parse(text);
  const media = { audioMs: total.audioMs ?? 0, images: total.images ?? 0 };
  return { ...total, timed: total.timed ?? total.requests, gpuMs: total.gpuMs ?? 0, ...media };
}

/** Maximum of a sum: JavaScript could not read a larger integer back exactly. */
export const USAGE_SUM_MAX = Number.MAX_SAFE_INTEGER;

export function addTotal(to: UsageTotal, more: UsageTotal): void {
  for (const name of USAGE_COUNTERS) to[name] = Math.min(USAGE_SUM_MAX, to[name] + more[name]);
}

export function totalKey({ day, project, user, key, model, provider }: UsageTotal): string {
  return JSON.stringify([day, project, user, key, model, provider]);
}

const PRIMARY_KEY = [
  usageTotals.day,
  usageTotals.project,
  usageTotals.user,
  usageTotals.key,
  usageTotals.model,
  usageTotals.provider,
];

/** Totals per statement: D1 binds at most 100 values, and each total has 23. */
const PER_STATEMENT = 4;

/**
 * Adds `totals`, unless this batch of this shard (hour) was already added. Rejects if D1 does not answer; then call it
 * again.
 */
export async function addToTotals(
  env: Pick<Env, 'DB'>,
  shard: string,
  batch: number,
  totals: readonly UsageTotal[],
): Promise<void> {
  const db = database(env);
  const counted = await db.select().from(usageBatches).where(sql`shard = ${shard} AND batch = ${batch}`);
  if (counted.length > 0) return;
  const statements = [];
  for (let from = 0; from < totals.length; from += PER_STATEMENT) {
    statements.push(
      db
        .insert(usageTotals)
        .values(totals.slice(from, from + PER_STATEMENT))
        .onConflictDoUpdate({
          target: PRIMARY_KEY,
          set: sums(env),
        }),
    );
  }
  // The primary key makes the whole batch fail if it is sent twice concurrently.
  await db.batch([db.insert(usageBatches).values({ shard, batch }), ...statements]);
  await db.delete(usageBatches).where(sql`shard = ${shard} AND batch < ${batch}`);
}

/** Deletes the batch numbers of a shard (hour) that no longer exists. */
export async function forgetBatches(env: Pick<Env, 'DB'>, shard: string): Promise<void> {
  await database(env).delete(usageBatches).where(eq(usageBatches.shard, shard));
}

/** Removes a user from the totals of a day. Sums of projects and providers stay the same. Atomic. */
export async function foldUser(env: Pick<Env, 'DB'>, user: string, day: string): Promise<void> {
  const db = database(env);
  const { least, total } = sqlFragments(env);
  const t = usageTotals;
  const counts = USAGE_COUNTERS.map((name) => least(total(t[name]), sql.raw(String(USAGE_SUM_MAX))));
  const theirs = and(eq(t.user, user), eq(t.day, day));
  // The columns have the order of the table.
  const folded = sql`SELECT ${t.day}, ${t.project}, '', '', ${t.model}, ${t.provider}, ${sql.join(counts, sql`, `)}
    FROM ${t} WHERE ${theirs} GROUP BY ${t.day}, ${t.project}, ${t.model}, ${t.provider}`;
  await db.batch([
    db
      .insert(t)
      .select(folded)
      .onConflictDoUpdate({ target: PRIMARY_KEY, set: sums(env) }),
    db.delete(t).where(theirs),
  ]);
}

function sums(env: Pick<Env, 'DB'>) {
  return Object.fromEntries(
    USAGE_COUNTERS.map((name) => {
      const column = usageTotals[name];
      return [
        name,
        sqlFragments(env).least(
          sql`${column} + excluded.${sql.identifier(column.name)}`,
          sql.raw(String(USAGE_SUM_MAX)),
        ),
      ];
    }),
  );
}
