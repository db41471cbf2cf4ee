import { eq } from 'drizzle-orm';
import { isTerminal } from '../../shared/batch/batch-status.ts';
import { database, queryOrUnavailable } from '../accounts/database.ts';
import type { Env } from '../env.ts';
import { batches } from '../files/file-tables.ts';
import type { BatchObjectJson, BatchSpec } from './batch-spec.ts';

/** True if the batch is in its owner's list. @throws ApiError 503 */
export async function isListed(env: Env, id: string): Promise<boolean> {
  return (await queryOrUnavailable(database(env).$count(batches, eq(batches.id, id)))) > 0;
}

/** Writes the batch object that lists show. @throws ApiError 503 */
export async function saveSummary(env: Env, spec: BatchSpec, summary: BatchObjectJson): Promise<void> {
  const open = !isTerminal(summary.status);
  await queryOrUnavailable(database(env).update(batches).set({ summary, open }).where(eq(batches.id, spec.id)));
}
