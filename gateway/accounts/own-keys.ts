/** How many keys that work a person may have without an operator, counted where a key is written: two at once are both counted. And their end. */
import { and, count, eq, getTableColumns, gt, isNull, or, type SQL, sql } from 'drizzle-orm';
import type { BatchItem } from 'drizzle-orm/batch';
import type { Env } from '../env.ts';
import { database, queryOrUnavailable } from './database.ts';
import { apiKeys, auditLog, deviceLogins, memberLimits, projectMembers, users } from './schema.ts';

export const OWN_KEYS_MAX = 50;

function working(userId: string, now: number): SQL | undefined {
  const ends = or(isNull(apiKeys.expiresAt), gt(apiKeys.expiresAt, now));
  return and(eq(apiKeys.userId, userId), isNull(apiKeys.revokedAt), ends);
}

/** @throws ApiError 503 when D1 cannot say */
export async function isBelowKeyLimit(env: Pick<Env, 'DB'>, userId: string, now: number): Promise<boolean> {
  const [all] = await queryOrUnavailable(
    database(env).select({ n: count() }).from(apiKeys).where(working(userId, now)),
  );
  return (all?.n ?? 0) < OWN_KEYS_MAX;
}

/** The name of a key that is inserted: NULL, which the table refuses, where the person has as many as they may. */
export function nameIfBelowLimit(name: string | SQL<string>, userId: string, now: number): SQL<string> {
  const taken = sql`(SELECT count(*) FROM ${apiKeys} WHERE ${working(userId, now)})`;
  return sql<string>`CASE WHEN ${taken} < ${OWN_KEYS_MAX} THEN ${name} END`;
}

type Key = typeof apiKeys.$inferSelect;

/** Whether the key is as it was read, its last use aside: what is made of it must not outlive its revocation, nor be wider than it is now. */
export function isUnchanged(key: Key): SQL<boolean> {
  const { lastUsedAt: _, ...columns } = getTableColumns(apiKeys);
  const same = Object.entries(columns).map(
    ([name, column]) => sql`${column} IS ${sql.param(key[name as keyof typeof columns], column)}`,
  );
  return sql<boolean>`EXISTS (SELECT 1 FROM ${apiKeys} WHERE ${and(...same)})`;
}

/** NULL where another key has taken the old one's place, or the old one was changed: of two rotations at once the second fails. */
export function nameIfUnchanged(old: Key): SQL<string> {
  const next = sql`(SELECT 1 FROM ${apiKeys} WHERE ${eq(apiKeys.rotatedFrom, old.id)})`;
  return sql<string>`CASE WHEN NOT EXISTS ${next} AND ${isUnchanged(old)} THEN ${old.name} END`;
}

/** Whether the person works in the project, as its member or because it is their own. */
export function isMemberOf(userId: string, projectId: string): SQL<boolean> {
  const own = sql`SELECT 1 FROM ${users} WHERE ${and(eq(users.id, userId), eq(users.projectId, projectId))}`;
  const member = sql`SELECT 1 FROM ${projectMembers} WHERE ${eq(projectMembers.id, `${projectId}/${userId}`)}`;
  return sql<boolean>`(EXISTS (${own}) OR EXISTS (${member}))`;
}

/**
 * A person works in a project no more: their keys in it end, each with its line in the audit log, by which isolates learn of it, and limits that its
 * leads gave them go, and so do machines that were let in and have no key yet. Four statements however many keys there are, for the batch that takes the person out of the project.
 */
export function leaveProject(
  db: ReturnType<typeof database>,
  { userId, projectId }: { userId: string; projectId: string },
  { actor, now }: { actor: string; now: number },
): BatchItem<'sqlite'>[] {
  const working = and(eq(apiKeys.userId, userId), eq(apiKeys.projectId, projectId), isNull(apiKeys.revokedAt));
  const { id, name } = apiKeys;
  const before = sql`json_object('name', ${name}, 'user_id', ${userId}, 'project_id', ${projectId})`;
  const lines = sql`SELECT NULL, ${now}, ${actor}, 'key.revoke', ${id}, ${before}, NULL FROM ${apiKeys} WHERE ${working}`;
  return [
    db.insert(auditLog).select(lines),
    db.update(apiKeys).set({ revokedAt: now }).where(working),
    db.delete(memberLimits).where(eq(memberLimits.id, `${projectId}/${userId}`)),
    db.delete(deviceLogins).where(and(eq(deviceLogins.userId, userId), eq(deviceLogins.projectId, projectId))),
  ];
}
