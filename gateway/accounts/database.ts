import { type DrizzleD1Database, drizzle } from 'drizzle-orm/d1';
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { Env } from '../env.ts';
import { storageHealth } from '../platform/storage/storage-health.ts';
import { isUnstorableText } from './unstorable-text.ts';

export function database(env: Pick<Env, 'DB'>): DrizzleD1Database {
  return env.DB.dialect?.queries ?? drizzle(env.DB);
}

/** Returns the database for queries that read many rows. On the Node host they run in a separate thread. */
export function reportDatabase({ DB, REPORTS = DB }: Pick<Env, 'DB' | 'REPORTS'>) {
  return database({ DB: REPORTS });
}

/** @throws ApiError 503 if storage cannot be written now. Called before D1 is changed. */
export function requireWritable(): void {
  const { failure } = storageHealth;
  if (failure === undefined) return;
  const message = `The gateway cannot store changes now: ${failure.reason}. Requests to models still work.`;
  throw new ApiError('server_is_overloaded', message);
}

/**
 * Awaits a query. If D1 cannot be reached, the error is 503 and never "wrong key" or "not found", so that the client
 * may try again.
 */
export async function queryOrUnavailable<T>(query: PromiseLike<T>): Promise<T> {
  try {
    return await query;
  } catch (cause) {
    if (isUnstorableText(cause))
      throw new ApiError('invalid_request', 'A text contains the character U+0000, which cannot be stored.', { cause });
    throw new ApiError('server_is_overloaded', 'The account store cannot be reached. Try again shortly.', { cause });
  }
}
