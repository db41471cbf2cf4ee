import { and, eq, type SQL, sql } from 'drizzle-orm';
import { ApiError } from '../../shared/openai/api-errors.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import { batches } from '../files/file-tables.ts';

const openOf = (owner: string) => and(eq(batches.owner, owner), eq(batches.open, true));

/** @throws ApiError 503 */
export function countOpenBatches(env: Env, owner: string): Promise<number> {
  return queryOrUnavailable(database(env).$count(batches, openOf(owner)));
}

/** @throws ApiError 429 if the owner has the maximum number of open batches; 503 */
export async function requireOpenBelowLimit(env: Env, owner: string, most: number): Promise<void> {
  const open = await countOpenBatches(env, owner);
  if (open < most) return;
  const message = `You already have ${open} unfinished batches, the maximum: wait for one, or cancel one.`;
  throw new ApiError('insufficient_quota', message);
}

/**
 * SQL for the key id of an inserted row, or NULL, which the table refuses, if too many batches are open. The INSERT
 * itself counts open batches, so that two concurrent insertions cannot exceed the maximum together.
 */
export function keyIfBelowLimit(env: Pick<Env, 'DB'>, owner: string, keyId: string, most: number): SQL<string> {
  return sql<string>`CASE WHEN (${database(env).$count(batches, openOf(owner))}) < ${most} THEN ${keyId} END`;
}
