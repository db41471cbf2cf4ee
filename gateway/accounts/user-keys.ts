/**
 * Limits the active keys that a user may create without an operator. The statement that inserts a key counts them, so
 * two concurrent requests cannot exceed the limit. Also revokes the keys of a user that leaves a project.
 */
import { and, count, eq, getTableColumns, gt, isNull, or, type SQL, sql } from 'drizzle-orm';
import type { BatchItem } from 'drizzle-orm/batch';
import type { Env } from '../env.ts';
import { apiKeys, auditLog, deviceLogins, memberLimits, projectMembers, users } from './account-tables.ts';
import { database, queryOrUnavailable } from './database.ts';
import { sqlFragments } from './sql-fragments.ts';

export const OWN_KEYS_MAX = 50;

function working(userId: string, now: number): SQL | undefined {
  const ends = or(isNull(apiKeys.expiresAt), gt(apiKeys.expiresAt, now));
  return and(eq(apiKeys.userId, userId), isNull(apiKeys.revokedAt), ends);
}

/** @throws ApiError 503 if D1 cannot be reached */
export async function isBelowKeyLimit(env: Pick<Env, 'DB'>, userId: string, now: number): Promise<boolean> {
  const [all] = await queryOrUnavailable(
    database(env).select({ n: count() }).from(apiKeys).where(working(userId, now)),
  );
  return (all?.n ?? 0) < OWN_KEYS_MAX;
}

/** SQL for the name of a new key, or NULL if the user has the maximum number of keys. The table refuses NULL. */
export function nameIfBelowLimit(name: string | SQL<string>, userId: string, now: number): SQL<string> {
  const taken = sql`(SELECT count(*) FROM ${apiKeys} WHERE ${working(userId, now)})`;
  return sql<string>`CASE WHEN ${taken} < ${OWN_KEYS_MAX} THEN ${name} END`;
}

type Key = typeof apiKeys.$inferSelect;

/**
 * SQL that is true if the key is unchanged since it was read, except for its last use. Statements that copy a key check
 * this condition: if the old key was revoked or lost rights meanwhile, no copy is made.
 */
export function isUnchanged(key: Key): SQL<boolean> {
  const { lastUsedAt: _, ...columns } = getTableColumns(apiKeys);
  const same = Object.entries(columns).map(([name, column]) => {
    // PostgreSQL compares JSON only as text.
    const stored = column.dataType === 'json' ? sql`cast(${column} AS text)` : column;
    return sql`${stored} IS NOT DISTINCT FROM ${sql.param(key[name as keyof typeof columns], column)}`;
  });
  return sql<boolean>`EXISTS (SELECT 1 FROM ${apiKeys} WHERE ${and(...same)})`;
}

/**
 * SQL for the name of the new key in a rotation: the old key's name, or NULL if the old key was already rotated or
 * changed. The table refuses NULL, so the second of two concurrent rotations fails.
 */
export function nameIfUnchanged(old: Key): SQL<string> {
  const next = sql`(SELECT 1 FROM ${apiKeys} WHERE ${eq(apiKeys.rotatedFrom, old.id)})`;
  return sql<string>`CASE WHEN NOT EXISTS ${next} AND ${isUnchanged(old)} THEN ${old.name} END`;
}

/** SQL that is true if the user works in the project, as a member or because it is their home project. */
export function isMemberOf(userId: string, projectId: string): SQL<boolean> {
  const own = sql`SELECT 1 FROM ${users} WHERE ${and(eq(users.id, userId), eq(users.projectId, projectId))}`;
  const member = sql`SELECT 1 FROM ${projectMembers} WHERE ${eq(projectMembers.id, `${projectId}/${userId}`)}`;
  return sql<boolean>`(EXISTS (${own}) OR EXISTS (${member}))`;
}

/** True if the user works in the project now. @throws ApiError 503 if D1 cannot be reached */
export async function worksIn(env: Pick<Env, 'DB'>, userId: string, projectId: string): Promise<boolean> {
  const where = and(eq(users.id, userId), isMemberOf(userId, projectId));
  return (await queryOrUnavailable(database(env).select({ id: users.id }).from(users).where(where))).length > 0;
}

/**
 * Returns the statements for a user that leaves a project. They revoke the user's keys in it, each with a line in the
 * audit log, by which isolates notice the revocation. They also delete the limits that the project's leads gave, and
 * approved logins of machines that have not fetched their key. There are four statements for any number of keys; add
 * them to the batch that removes the user from the project.
 */
export function leaveProject(
  env: Pick<Env, 'DB'>,
  { userId, projectId }: { userId: string; projectId: string },
  { actor, now }: { actor: string; now: number },
): BatchItem<'sqlite'>[] {
  const db = database(env);
  const fragments = sqlFragments(env);
  const working = and(eq(apiKeys.userId, userId), eq(apiKeys.projectId, projectId), isNull(apiKeys.revokedAt));
  const { id, name } = apiKeys;
  const before = fragments.jsonObject({ name, user_id: userId, project_id: projectId });
  const lines = sql`SELECT ${fragments.newAuditId}, ${now}, ${actor}, 'key.revoke', ${id}, ${before}, NULL FROM ${apiKeys} WHERE ${working}`;
  return [
    db.insert(auditLog).select(lines),
    db.update(apiKeys).set({ revokedAt: now }).where(working),
    db.delete(memberLimits).where(eq(memberLimits.id, `${projectId}/${userId}`)),
    db.delete(deviceLogins).where(and(eq(deviceLogins.userId, userId), eq(deviceLogins.projectId, projectId))),
  ];
}
