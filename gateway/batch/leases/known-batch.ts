import { eq } from 'drizzle-orm';
import { asked, database } from '../../accounts/database.ts';
import { batches } from '../../accounts/schema.ts';
import type { Env } from '../../env.ts';

/** Ids of batches that this isolate has seen to exist. */
const KNOWN_MAX = 10_000;
const known = new Set<string>();

/**
 * The object of a batch that an agent names; undefined where there is none. Any name makes an object, which has a file and keeps it: a node
 * could fill the disk with names. @throws ApiError 503
 */
export async function knownBatch(
  env: Pick<Env, 'DB' | 'BATCH'>,
  id: string,
): Promise<ReturnType<Env['BATCH']['getByName']> | undefined> {
  if (!known.has(id)) {
    const [row] = await asked(database(env).select({ id: batches.id }).from(batches).where(eq(batches.id, id)));
    if (row === undefined) return undefined;
    if (known.size >= KNOWN_MAX) known.clear();
    known.add(id);
  }
  return env.BATCH.getByName(id);
}
