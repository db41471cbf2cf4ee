/** Finds events in the stores of the gateway. Each has an id, so that an event that is found again is known. */
import { and, desc, eq, gt, gte, isNull, lt, or, sql } from 'drizzle-orm';
import type { SQLiteColumn, SQLiteTable } from 'drizzle-orm/sqlite-core';
import { type DepartureCause, departureCause } from '../../shared/lattice/departure-cause.ts';
import { accessRequests, apiKeys, projects, users } from '../accounts/account-tables.ts';
import { database, queryOrUnavailable, reportDatabase } from '../accounts/database.ts';
import { readGatewaySettings } from '../accounts/gateway-settings.ts';
import { sqlFragments } from '../accounts/sql-fragments.ts';
import type { Env } from '../env.ts';
import { batchEndedAt, batches } from '../files/file-tables.ts';
import { REGISTRY_OBJECT_NAME } from '../platform/registry-object-name.ts';
import type { EventType } from '../settings/notification-settings.ts';
import { usageTotals } from '../usage/usage-tables.ts';

export interface GatewayEvent {
  /** The same for the same event, and unique. */
  id: string;
  type: EventType;
  /** Ids, names of models and numbers. Never text of prompts or responses. */
  data: Readonly<Record<string, string | number | null>>;
}

/** Maximum events of a kind in one look, the newest first. A look is a minute after the last one. */
const ROWS_MAX = 1_000;
/** Maximum lost nodes of one look: the largest page of the nodes' history. */
const NODES_MAX = 1_000;
const DAY_MS = 86_400_000;
const EXPIRING_MS = 7 * DAY_MS;
/** Shares of a monthly limit at which an event is sent. */
const SHARES = [0.8, 1] as const;
/** Nodes that left for these reasons are lost. The others were ended on purpose, or their job ended as planned. */
const LOST: readonly DepartureCause[] = ['crashed', 'unknown', 'preempted'];

/** Returns events since `since`, of access requests, batches and nodes. */
export async function findRecentEvents(env: Env, since: number): Promise<GatewayEvent[]> {
  const found = await Promise.all([accessEvents(env, since), batchEvents(env, since), nodeEvents(env, since)]);
  return found.flat();
}

/** Returns events of states that change slowly: keys that end within a week, and monthly limits. */
export async function findSlowEvents(env: Env, now: number): Promise<GatewayEvent[]> {
  return (await Promise.all([expiringKeys(env, now), reachedLimits(env, now)])).flat();
}

async function accessEvents(env: Env, since: number): Promise<GatewayEvent[]> {
  const { createdAt, decidedAt } = accessRequests;
  const rows = await queryOrUnavailable(
    database(env)
      .select()
      .from(accessRequests)
      .where(or(gt(createdAt, since), gt(decidedAt, since)))
      .orderBy(desc(createdAt))
      .limit(ROWS_MAX),
  );
  return rows.flatMap((row): GatewayEvent[] => {
    const data = { request_id: row.id, user_id: row.userId, project_id: row.projectId, model: row.model };
    const asked: GatewayEvent = { id: `access.requested/${row.id}`, type: 'access.requested', data };
    const decided = { ...data, status: row.status };
    return [
      ...(row.createdAt > since ? [asked] : []),
      ...(row.status === 'open'
        ? []
        : [{ id: `access.decided/${row.id}`, type: 'access.decided' as const, data: decided }]),
    ];
  });
}

async function batchEvents(env: Env, since: number): Promise<GatewayEvent[]> {
  const { id, open, createdBy, owner, summary } = batches;
  // OpenAI's times are in seconds, rounded down.
  const isRecent = gt(batchEndedAt, since / 1_000 - 1);
  const rows = await queryOrUnavailable(
    database(env)
      .select({ id, owner, key: createdBy, status: sql<string | null>`${summary} ->> 'status'` })
      .from(batches)
      .where(and(isRecent, eq(open, false)))
      .orderBy(desc(batchEndedAt))
      .limit(ROWS_MAX),
  );
  return rows.map(({ id: batch, owner: of, key, status }) => {
    const data = { batch_id: batch, owner: of, key_id: key, status };
    return { id: `batch.ended/${batch}`, type: 'batch.ended', data };
  });
}

async function nodeEvents(env: Env, since: number): Promise<GatewayEvent[]> {
  const events = await env.REGISTRY.getByName(REGISTRY_OBJECT_NAME).history({ limit: NODES_MAX, event: 'left' });
  return events.flatMap((event): GatewayEvent[] => {
    const { at, session, node, provider, cluster, reason } = event;
    const cause = departureCause(reason);
    if (at <= since || !LOST.includes(cause)) return [];
    return [{ id: `node.lost/${session}`, type: 'node.lost', data: { session, node, provider, cluster, cause } }];
  });
}

async function expiringKeys(env: Env, now: number): Promise<GatewayEvent[]> {
  const { createdAt, expiresAt, revokedAt } = apiKeys;
  const soon = and(gt(expiresAt, now), lt(expiresAt, now + EXPIRING_MS), isNull(revokedAt));
  // A key that lives for less than two weeks was made to end soon.
  const isLong = sql`${expiresAt} - ${createdAt} >= ${2 * EXPIRING_MS}`;
  // Keys that have just entered their last week are not reported yet, so these come first.
  const rows = await queryOrUnavailable(
    database(env).select().from(apiKeys).where(and(soon, isLong)).orderBy(desc(expiresAt)).limit(ROWS_MAX),
  );
  return rows.flatMap(({ id, userId, projectId, expiresAt: end }): GatewayEvent[] => {
    if (end === null) return [];
    const data = { key_id: id, user_id: userId, project_id: projectId, expires_at: new Date(end).toISOString() };
    return [{ id: `key.expiring/${id}/${end}`, type: 'key.expiring', data }];
  });
}

interface Owners {
  kind: 'project' | 'user' | 'key';
  table: SQLiteTable;
  id: SQLiteColumn;
  limits: SQLiteColumn;
  /** Column of the usage totals. */
  owner: SQLiteColumn;
  /** Limit of owners without limits. */
  standard: number | undefined;
}

async function reachedLimits(env: Env, now: number): Promise<GatewayEvent[]> {
  const month = new Date(now).toISOString().slice(0, 7);
  const standard = (await readGatewaySettings(env)).userLimits?.tokens_per_month;
  const { project, user, key } = usageTotals;
  const [of, none] = [({ id, limits }: typeof projects | typeof apiKeys) => ({ id, limits }), { standard: undefined }];
  const found = await Promise.all([
    reached(env, month, { kind: 'project', table: projects, ...of(projects), owner: project, ...none }),
    reached(env, month, { kind: 'user', table: users, id: users.id, limits: users.limits, owner: user, standard }),
    reached(env, month, { kind: 'key', table: apiKeys, ...of(apiKeys), owner: key, ...none }),
  ]);
  return found.flat();
}

async function reached(env: Env, month: string, owners: Owners): Promise<GatewayEvent[]> {
  const { kind, table, id, limits, owner, standard } = owners;
  const { day, prompt, completion } = usageTotals;
  const { total } = sqlFragments(env);
  const db = reportDatabase(env);
  const tokens = sql<number>`${total(prompt)} + ${total(completion)}`.as('tokens');
  const used = db
    .select({ owner: sql<string>`${owner}`.as('owner'), tokens })
    .from(usageTotals)
    .where(gte(day, `${month}-01`))
    .groupBy(owner)
    .as('used');
  const otherwise = standard === undefined ? sql`NULL` : sql.raw(`'${standard}'`);
  const own = sql`CASE WHEN ${limits} IS NULL THEN ${otherwise} ELSE ${limits} ->> 'tokens_per_month' END`;
  const allowed = sql<number>`CAST(${own} AS NUMERIC)`;
  const rows = await queryOrUnavailable(
    db
      .select({ id: sql<string>`${id}`, tokens: used.tokens, allowed })
      .from(used)
      .innerJoin(table, eq(id, used.owner))
      .where(sql`${used.tokens} >= ${sql.raw(String(SHARES[0]))} * ${allowed}`)
      .limit(ROWS_MAX),
  );
  return rows.flatMap((row) =>
    limitEvent(kind, month, { id: row.id, used: Number(row.tokens), allowed: Number(row.allowed) }),
  );
}

function limitEvent(
  kind: string,
  month: string,
  { id, used, allowed }: { id: string; used: number; allowed: number },
): GatewayEvent[] {
  return SHARES.filter((share) => used >= share * allowed).map((share) => {
    const percent = Math.round(share * 100);
    const data = { kind, id, limit: 'tokens_per_month', percent, used, allowed, month };
    return { id: `limit.reached/${kind}/${id}/${month}/${percent}`, type: 'limit.reached', data };
  });
}
