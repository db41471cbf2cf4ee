/** How many keys that work a person may have without an operator, counted where a key is written: two at once are both counted. */
import { and, count, eq, gt, isNull, or, type SQL, sql } from 'drizzle-orm';
import type { Env } from '../env.ts';
import { asked, database } from './database.ts';
import { apiKeys } from './schema.ts';

export const OWN_KEYS_MAX = 50;

function working(userId: string, now: number): SQL | undefined {
  const ends = or(isNull(apiKeys.expiresAt), gt(apiKeys.expiresAt, now));
  return and(eq(apiKeys.userId, userId), isNull(apiKeys.revokedAt), ends);
}

/** @throws ApiError 503 when D1 cannot say */
export async function hasRoom(env: Pick<Env, 'DB'>, userId: string, now: number): Promise<boolean> {
  const [all] = await asked(database(env).select({ n: count() }).from(apiKeys).where(working(userId, now)));
  return (all?.n ?? 0) < OWN_KEYS_MAX;
}

/** The name of a key that is inserted: NULL, which the table refuses, where the person has as many as they may. */
export function nameWhereRoom(name: string | SQL<string>, userId: string, now: number): SQL<string> {
  const taken = sql`(SELECT count(*) FROM ${apiKeys} WHERE ${working(userId, now)})`;
  return sql<string>`CASE WHEN ${taken} < ${OWN_KEYS_MAX} THEN ${name} END`;
}

/** NULL where another key has taken the old one's place: of two rotations at once the second fails. */
export function nameWhereNext(name: string, oldId: string): SQL<string> {
  const next = sql`(SELECT 1 FROM ${apiKeys} WHERE ${eq(apiKeys.rotatedFrom, oldId)})`;
  return sql<string>`CASE WHEN NOT EXISTS ${next} THEN ${name} END`;
}
