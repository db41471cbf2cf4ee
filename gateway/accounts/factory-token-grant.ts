/** Reads the rights of a factory token: an autoscaler may exchange state about nodes of one provider. */
import { eq } from 'drizzle-orm';
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { Env } from '../env.ts';
import { factoryTokens } from './account-tables.ts';
import { database, queryOrUnavailable } from './database.ts';
import { FACTORY_PREFIX, isSecret, sha256Hex } from './secrets.ts';

interface FactoryGrant {
  tokenId: string;
  provider: string;
}

/**
 * Reads D1 each time, because an autoscaler calls only twice a minute.
 * @throws ApiError 401 if the token is unknown, revoked or expired; 503 if D1 cannot be reached
 */
export async function readFactoryGrant(
  env: Pick<Env, 'DB'>,
  token: string | undefined,
  now: number,
): Promise<FactoryGrant> {
  if (token === undefined) throw refused('No factory token was given. Send it as "Authorization: Bearer otf_…".');
  if (!isSecret(token, FACTORY_PREFIX)) throw refused('This gateway does not know this factory token.');
  const [found] = await queryOrUnavailable(
    database(env)
      .select()
      .from(factoryTokens)
      .where(eq(factoryTokens.hash, sha256Hex(token))),
  );
  if (found === undefined) throw refused('This gateway does not know this factory token.');
  if (found.revokedAt !== null) throw revokedFactory();
  if (found.expiresAt !== null && found.expiresAt <= now) throw refused('This factory token has expired.');
  return { tokenId: found.id, provider: found.provider };
}

function revokedFactory(): ApiError {
  return refused('This factory token has been revoked.');
}

function refused(message: string): ApiError {
  return new ApiError('invalid_api_key', message);
}
