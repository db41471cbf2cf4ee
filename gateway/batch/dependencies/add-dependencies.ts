/** Connects a new batch with the batches that have the results for its lines. */
import { and, eq, inArray } from 'drizzle-orm';
import { AFTER_MAX, CHAIN_MAX, DEPENDENTS_MAX } from '../../../shared/batch/line-references.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { database, queryOrUnavailable } from '../../accounts/database.ts';
import type { Env } from '../../env.ts';
import { batches } from '../../files/file-tables.ts';
import type { BatchSpec } from '../batch-spec.ts';

const PARAM = { param: 'x_otela.after' };
const BATCH_ID = /^batch_[0-9a-f]{24}$/;

/** @throws ApiError 400 */
export function readAfter(value: unknown): string[] {
  if (value === undefined || value === null) return [];
  const isList = Array.isArray(value) && value.length <= AFTER_MAX && new Set(value).size === value.length;
  if (isList && value.every((id) => typeof id === 'string' && BATCH_ID.test(id))) return value;
  throw new ApiError('invalid_request', `'x_otela.after' must be a list of at most ${AFTER_MAX} batch ids.`, PARAM);
}

interface NewBatch {
  id: string;
  owner: string;
  after: readonly string[];
  windowS: number;
}

/**
 * Lets the named batches keep their results for the new one.
 * @returns the members of the new batch's spec
 * @throws ApiError 400 if a batch does not exist or the chain is too long, 409 if one has ended, 503
 */
export async function addDependencies(
  env: Env,
  { id, owner, after, windowS }: NewBatch,
  nowMs: number,
): Promise<Pick<BatchSpec, 'after' | 'depth'>> {
  if (after.length === 0) return {};
  const found = await queryOrUnavailable(
    database(env)
      .select({ id: batches.id })
      .from(batches)
      .where(and(inArray(batches.id, [...after]), eq(batches.owner, owner))),
  );
  const known = new Set(found.map((one) => one.id));
  const missing = after.find((one) => !known.has(one));
  if (missing !== undefined) throw new ApiError('invalid_request', `There is no batch ${missing} here.`, PARAM);
  let depth = 0;
  try {
    for (const one of after) {
      const before = await env.BATCH.getByName(one).addDependent(id, nowMs + windowS * 1_000);
      if (typeof before !== 'number') throw refusal(one, before.refused);
      depth = Math.max(depth, before + 1);
    }
    if (depth < CHAIN_MAX) return { after: [...after], depth };
    throw new ApiError('invalid_request', `A chain has at most ${CHAIN_MAX} batches.`, PARAM);
  } catch (error) {
    for (const one of after) await env.BATCH.getByName(one).dropDependent(id);
    throw error;
  }
}

function refusal(id: string, why: 'ended' | 'full'): ApiError {
  if (why === 'ended') return new ApiError('conflict', `${id} has ended: read its results from its files.`, PARAM);
  return new ApiError('conflict', `${DEPENDENTS_MAX} batches already need results of ${id}.`, PARAM);
}
