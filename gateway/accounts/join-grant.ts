/** A join token is good for one provider, maybe one cluster, so many nodes, and so long. */
import { and, eq, gt, isNull, lt, or, sql } from 'drizzle-orm';
import { ApiError } from '../../shared/openai/errors.ts';
import type { Env } from '../env.ts';
import { asked, database } from './database.ts';
import { joinTokens } from './schema.ts';
import { isSecret, sha256Hex, TOKEN_PREFIX } from './secrets.ts';

interface JoinGrant {
  tokenId: string;
  provider: string;
  /** Undefined: the agent may name any. */
  cluster: string | undefined;
}

/**
 * Lets one more node in: checked and counted in one statement, so that no two nodes get the last place.
 * `cluster` is what the agent says; `now` in milliseconds since the epoch.
 * @throws ApiError 401 unknown, revoked, expired or used up; 403 another cluster than the token's; 503 when D1 cannot say
 */
export async function spendJoinToken(
  env: Pick<Env, 'DB'>,
  token: string,
  cluster: string | undefined,
  now: number,
): Promise<JoinGrant> {
  if (!isSecret(token, TOKEN_PREFIX)) throw unknownToken();
  const hash = sha256Hex(token);
  const { id, provider, cluster: only } = joinTokens;
  const free = or(isNull(joinTokens.maxNodes), lt(joinTokens.nodes, joinTokens.maxNodes));
  const inTime = or(isNull(joinTokens.expiresAt), gt(joinTokens.expiresAt, now));
  const fits = cluster === undefined ? undefined : or(isNull(only), eq(only, cluster));
  const [row] = await asked(
    database(env)
      .update(joinTokens)
      .set({ nodes: sql`${joinTokens.nodes} + 1` })
      .where(and(eq(joinTokens.hash, hash), isNull(joinTokens.revokedAt), free, inTime, fits))
      .returning({ id, provider, cluster: only }),
  );
  if (row === undefined) throw await whyNot(env, hash, cluster, now);
  return { tokenId: row.id, provider: row.provider, cluster: row.cluster ?? undefined };
}

async function whyNot(env: Pick<Env, 'DB'>, hash: string, cluster: string | undefined, now: number): Promise<ApiError> {
  const [row] = await asked(database(env).select().from(joinTokens).where(eq(joinTokens.hash, hash)));
  if (row === undefined) return unknownToken();
  if (row.revokedAt !== null) return refused('This join token has been revoked.');
  if (row.expiresAt !== null && row.expiresAt <= now) return refused('This join token has expired.');
  if (row.cluster !== null && cluster !== undefined && row.cluster !== cluster) {
    const message = `This join token is for cluster "${row.cluster}", but the agent says "${cluster}".`;
    return new ApiError('permission_denied', message);
  }
  return refused(`This join token was for ${row.maxNodes} nodes, and so many have joined.`);
}

export function unknownToken(): ApiError {
  return refused('This join token is not known here.');
}

function refused(message: string): ApiError {
  return new ApiError('invalid_api_key', message);
}
