import { eq } from 'drizzle-orm';
import type * as z from 'zod';
import type { Env } from '../env.ts';
import { settings } from './account-tables.ts';
import { database, queryOrUnavailable } from './database.ts';

/**
 * Reads a setting that is not in the registry's snapshot, because no request to a model needs it. Undefined: it is not
 * set, or another version of the gateway wrote it.
 * @throws ApiError 503
 */
export async function readSetting<T>(env: Pick<Env, 'DB'>, name: string, schema: z.ZodType<T>): Promise<T | undefined> {
  const [row] = await queryOrUnavailable(
    database(env).select({ value: settings.value }).from(settings).where(eq(settings.name, name)),
  );
  return schema.safeParse(row?.value).data;
}
