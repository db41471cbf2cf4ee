/**
 * The rights that a join token gives: agents may register nodes of one provider, optionally of one cluster only, up to
 * a maximum number and until the token expires.
 */
import { and, eq, isNull, sql } from 'drizzle-orm';
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { Env } from '../env.ts';
import { joinTokens, providerRights, providers, users } from './account-tables.ts';
import { database, queryOrUnavailable } from './database.ts';
import { isSecret, sha256Hex, TOKEN_PREFIX } from './secrets.ts';

interface JoinGrant {
  tokenId: string;
  provider: string;
  /** The only cluster that nodes may name; undefined: any. */
  cluster: string | undefined;
  /** Maximum concurrent nodes with this token; null: only the provider's maximum applies. */
  tokenNodesMax: number | null;
  /** Maximum concurrent nodes of this provider; null: the default applies. */
  providerNodesMax: number | null;
}

/**
 * Reads the rights of a join token. The registry checks the number of nodes, because it knows the current ones.
 * `cluster` is the cluster that the agent claims; `now` is in milliseconds since the epoch.
 * @throws ApiError 401 if the token is unknown, revoked or expired; 403 if the token is for another cluster; 503 if D1
 * cannot be reached
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
      .select({ token: joinTokens, providerNodesMax: providers.maxNodes, leftAt: users.disabledAt })
      .from(joinTokens)
      .leftJoin(providers, eq(providers.id, joinTokens.provider))
      .leftJoin(providerRights, eq(providerRights.id, joinTokens.rightId))
      .leftJoin(users, eq(users.id, providerRights.userId))
      .where(eq(joinTokens.hash, sha256Hex(token))),
  );
  if (found === undefined) throw unknownToken();
  const { id, provider, cluster: only, maxNodes, revokedAt, expiresAt } = found.token;
  if (revokedAt !== null) throw revokedToken();
  if (found.leftAt !== null) throw refused('The user that created this join token is disabled.');
  if (expiresAt !== null && expiresAt <= now) throw refused('This join token has expired.');
  if (only !== null && cluster !== undefined && only !== cluster) {
    const message = `This join token is for the cluster "${only}", but the agent names "${cluster}".`;
    throw new ApiError('permission_denied', message);
  }
  const { providerNodesMax } = found;
  return { tokenId: id, provider, cluster: only ?? undefined, tokenNodesMax: maxNodes, providerNodesMax };
}

/**
 * Counts one more node that joined with the token. Returns false if the token was revoked meanwhile.
 * @throws ApiError 503 if D1 cannot be reached
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
