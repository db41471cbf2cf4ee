/** Which agents may join, and as whose. */
import { eq } from 'drizzle-orm';
import { ID_PATTERN } from '../../shared/lattice/node.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import type { Env } from '../env.ts';
import { presentedKey } from './authenticate.ts';
import { asked, database } from './database.ts';
import { joinTokens } from './schema.ts';
import { isSecret, sha256Hex, TOKEN_PREFIX } from './secrets.ts';

export interface Admission {
  provider: string;
  cluster: string;
  tokenId: string;
}

/** Of an agent that names no cluster, with a token that names none. */
const DEFAULT_CLUSTER = 'default';

/**
 * Admits the agent behind a `/agent/connect` request. Asks D1 each time: agents connect rarely and a revoked token must not.
 * Rejects with ApiError: 401 unknown or revoked token, 403 another cluster than the token's, 400 malformed cluster, 503 D1.
 */
export async function admitNode(env: Pick<Env, 'DB'>, request: Request): Promise<Admission> {
  const token = presentedKey(request);
  const claimed = request.headers.get('x-otela-cluster')?.trim() || undefined;
  if (token === undefined)
    throw unauthorized('No join token was given. Start the agent with --token-file or OTELA_TOKEN.');
  if (claimed !== undefined && !ID_PATTERN.test(claimed)) {
    throw new ApiError('invalid_request', `A cluster's name must match ${ID_PATTERN.source}.`);
  }
  const row = isSecret(token, TOKEN_PREFIX) ? await findToken(env, token) : undefined;
  if (row === undefined) throw unauthorized('This join token is not known here.');
  if (row.revokedAt !== null) throw unauthorized('This join token has been revoked.');
  if (row.cluster !== null && claimed !== undefined && row.cluster !== claimed) {
    const message = `This join token is for cluster "${row.cluster}", but the agent says "${claimed}".`;
    throw new ApiError('permission_denied', message);
  }
  return { provider: row.provider, cluster: row.cluster ?? claimed ?? DEFAULT_CLUSTER, tokenId: row.id };
}

async function findToken(env: Pick<Env, 'DB'>, token: string) {
  const { id, provider, cluster, revokedAt } = joinTokens;
  const query = database(env)
    .select({ id, provider, cluster, revokedAt })
    .from(joinTokens)
    .where(eq(joinTokens.hash, sha256Hex(token)));
  return (await asked(query))[0];
}

function unauthorized(message: string): ApiError {
  return new ApiError('invalid_api_key', message);
}
