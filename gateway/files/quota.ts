import { eq, sum } from 'drizzle-orm';
import { asked, database } from '../accounts/database.ts';
import { files } from '../accounts/schema.ts';
import type { Env } from '../env.ts';

/** Bytes that one owner may have here at a time. */
export const OWNER_MAX_BYTES = 20_000_000_000;

/** @throws ApiError 503 */
export async function usedBytes(env: Env, owner: string): Promise<number> {
  const found = await asked(
    database(env)
      .select({ bytes: sum(files.bytes) })
      .from(files)
      .where(eq(files.owner, owner)),
  );
  return Number(found[0]?.bytes ?? 0);
}
