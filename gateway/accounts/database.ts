import { drizzle } from 'drizzle-orm/d1';
import { ApiError } from '../../shared/openai/errors.ts';
import type { Env } from '../env.ts';
import { storageHealth } from '../platform/storage/health.ts';
import * as schema from './schema.ts';

export function database(env: Pick<Env, 'DB'>) {
  return drizzle(env.DB, { schema });
}

/** For a read over many rows. */
export function reportDatabase({ DB, REPORTS = DB }: Pick<Env, 'DB' | 'REPORTS'>) {
  return database({ DB: REPORTS });
}

/** Refuses what cannot be written now, before D1 is asked. @throws ApiError 503 */
export function requireWritable(): void {
  const { failure } = storageHealth;
  if (failure === undefined) return;
  const message = `Nothing can be stored at this moment: ${failure.reason}. Requests to models are served.`;
  throw new ApiError('server_is_overloaded', message);
}

/** A gateway that follows another one changes nothing. @throws ApiError 503 with the address of the first */
export function requirePrimary({ INSTITUTION }: Pick<Env, 'INSTITUTION'>): void {
  const first = INSTITUTION?.first;
  if (first === undefined) return;
  const message = `This gateway follows ${first}: make changes there.`;
  throw new ApiError('server_is_overloaded', message, { headers: { location: first, 'x-should-retry': 'false' } });
}

/** Awaits a query. A store that cannot be asked is 503, never "wrong key" or "not found": the client may try again. */
export async function queryOrUnavailable<T>(query: PromiseLike<T>): Promise<T> {
  try {
    return await query;
  } catch (cause) {
    throw new ApiError('server_is_overloaded', 'The account store cannot be reached. Try again shortly.', { cause });
  }
}
