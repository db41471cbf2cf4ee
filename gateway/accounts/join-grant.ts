/**
 * The rights that a join token gives: one provider, optionally one cluster, a maximum number of concurrent nodes, and
 * an end.
 */
import { and, eq, isNull, sql } from 'drizzle-orm';
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { Env } from '../env.ts';
import { database, queryOrUnavailable } from './database.ts';
import { joinTokens, providers } from './schema.ts';
import { isSecret, sha256Hex, TOKEN_PREFIX } from './secrets.ts';

interface JoinGrant {
  tokenId: string;
  provider: string;
  /** Undefined: the agent may name any cluster. */
  cluster: string | undefined;
  /** Maximum concurrent nodes with this token; null: the provider's maximum. */
  tokenNodesMax: number | null;
  /** Maximum concurrent nodes of this provider; null: the default. */
  providerNodesMax: number | null;
}

/**
 * Reads the rights of a join token. The registry decides whether another node may join, because it knows the present
 * nodes. `cluster` is the agent's claim; `now` is in milliseconds since the epoch.
 * @throws ApiError 401 unknown, revoked or expired; 403 another cluster than the token's; 503 if D1 cannot be asked
 */
export async function readJoinGrant(
  env: Pick<Env, 'DB'>,
  token: string,
  cluster: string | undefined,
  now: number,
): Promise<JoinGrant> {
  if (!isSecret(token, TOKEN_PREFIX)) throw unknownToken();
  const [found] = await queryOrUnavailable(
    database(env)
      .select({ token: joinTokens, providerNodesMax: providers.maxNodes })
      .from(joinTokens)
      .leftJoin(providers, eq(providers.id, joinTokens.provider))
      .where(eq(joinTokens.hash, sha256Hex(token))),
  );
  if (found === undefined) throw unknownToken();
  const { id, provider, cluster: only, maxNodes, revokedAt, expiresAt } = found.token;
  if (revokedAt !== null) throw revokedToken();
  if (expiresAt !== null && expiresAt <= now) throw refused('This join token has expired.');
  if (only !== null && cluster !== undefined && only !== cluster) {
    const message = `This join token is for cluster "${only}", but the agent says "${cluster}".`;
    throw new ApiError('permission_denied', message);
  }
  const { providerNodesMax } = found;
  return { tokenId: id, provider, cluster: only ?? undefined, tokenNodesMax: maxNodes, providerNodesMax };
}

/**
 * Counts one more node. Returns false if the token was revoked meanwhile. @throws ApiError 503 if D1 cannot be asked
 */
export async function countJoin(env: Pick<Env, 'DB'>, tokenId: string): Promise<boolean> {
  const counted = database(env)
    .update(joinTokens)
    .set({ joined: sql`${joinTokens.joined} + 1` })
    .where(and(eq(joinTokens.id, tokenId), isNull(joinTokens.revokedAt)))
    .returning({ id: joinTokens.id });
  return (await queryOrUnavailable(counted)).length > 0;
}

export function revokedToken(): ApiError {
  return refused('This join token has been revoked.');
}

export function unknownToken(): ApiError {
  return refused('This join token is not known here.');
}

function refused(message: string): ApiError {
  return new ApiError('invalid_api_key', message);
}
