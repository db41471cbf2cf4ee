import { and, eq, type SQL, sql } from 'drizzle-orm';
import { ApiError } from '../../shared/openai/errors.ts';
import { asked, database } from '../accounts/database.ts';
import { batches } from '../accounts/schema.ts';
import type { Env } from '../env.ts';

/** Batches of one owner that are not over. */
export const OPEN_MAX = 100;

const openOf = (owner: string) => and(eq(batches.owner, owner), eq(batches.open, true));

/** @throws ApiError 503 */
export function openBatches(env: Env, owner: string): Promise<number> {
  return asked(database(env).$count(batches, openOf(owner)));
}

/** @throws ApiError 429, 503 */
export async function requireFewOpen(env: Env, owner: string): Promise<void> {
  const open = await openBatches(env, owner);
  if (open < OPEN_MAX) return;
  const message = `You have ${open} batches that are not over: wait for one, or cancel one.`;
  throw new ApiError('insufficient_quota', message);
}

/** The key of a row that is inserted: NULL, which the table refuses, where too many are open. Counted there, two at once are both counted. */
export function keyWhereFewOpen(env: Pick<Env, 'DB'>, owner: string, keyId: string): SQL<string> {
  return sql<string>`CASE WHEN (${database(env).$count(batches, openOf(owner))}) < ${OPEN_MAX} THEN ${keyId} END`;
}
