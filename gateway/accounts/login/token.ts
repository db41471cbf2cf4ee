/** Bearer tokens of a configured identity provider, as good as a key for the API. */
import { decodeJwt } from 'jose';
import { ApiError } from '../../../shared/openai/errors.ts';
import type { Env } from '../../env.ts';
import { type Account, unauthorized } from '../account.ts';
import { verifyToken } from './oidc.ts';
import type { OidcIssuer } from './oidc-config.ts';
import { findOrCreateUser } from './sign-in.ts';

/** Three parts of base64url; keys of ours have no dots. */
const JWT = /^[\w-]+\.[\w-]+\.[\w-]*$/;
/** Tokens with many groups are long; headers above 16 KiB no server takes. */
const TOKEN_MAX_CHARS = 12_000;

export function isToken(key: string): boolean {
  return key.length <= TOKEN_MAX_CHARS && JWT.test(key);
}

/** @throws ApiError 401 bad token, 403 not admitted, 503 when issuer or D1 cannot say */
export async function tokenAccount(
  env: Pick<Env, 'DB'> & Partial<Pick<Env, 'REGISTRY'>>,
  issuers: readonly OidcIssuer[],
  token: string,
  now: number,
): Promise<Account> {
  const config = issuers.find((one) => one.audience !== null && one.issuer === issuerOf(token));
  if (config === undefined || config.audience === null)
    throw unauthorized('Tokens of this issuer are not accepted here.');
  const claims = await verifyToken(config, token, config.audience, now);
  try {
    const { account } = await findOrCreateUser(env, config, claims, now);
    return { ...account, expiresAt: (claims.exp ?? 0) * 1000 };
  } catch (error) {
    // To an API a user who may not come in is one whose credentials are no good.
    if (error instanceof ApiError && error.code === 'permission_denied') throw unauthorized(error.message);
    throw error;
  }
}

/** Not believed, only looked up. */
function issuerOf(token: string): string | undefined {
  try {
    return decodeJwt(token).iss;
  } catch {
    return undefined;
  }
}
