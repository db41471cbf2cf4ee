import { and, eq } from 'drizzle-orm';
import { asked, database } from '../accounts/database.ts';
import { batches } from '../accounts/schema.ts';
import type { Env } from '../env.ts';

/** Batches of one owner that are not over. */
export const OPEN_MAX = 100;

/** @throws ApiError 503 */
export function openBatches(env: Env, owner: string): Promise<number> {
  return asked(database(env).$count(batches, and(eq(batches.owner, owner), eq(batches.open, true))));
}
