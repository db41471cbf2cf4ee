/** Bearer tokens of a configured identity provider. The API accepts them like keys. */
import { decodeJwt } from 'jose';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import type { Env } from '../../env.ts';
import { type Account, unauthorized } from '../account.ts';
import { verifyToken } from './oidc.ts';
import type { OidcIssuer } from './oidc-config.ts';
import { findOrCreateUser } from './oidc-user.ts';

/** Matches a JWT: three parts of base64url. API keys have no dots. */
const JWT = /^[\w-]+\.[\w-]+\.[\w-]*$/;
/** Maximum characters of a token. Tokens with many groups are long, but servers do not accept headers above 16 KiB. */
const TOKEN_MAX_CHARS = 12_000;

export function isToken(key: string): boolean {
  return key.length <= TOKEN_MAX_CHARS && JWT.test(key);
}

/**
 * @throws ApiError 401 if the token is invalid or its user is not admitted; 503 if the issuer or D1 cannot be reached
 */
export async function tokenAccount(
  env: Pick<Env, 'DB'> & Partial<Pick<Env, 'REGISTRY'>>,
  issuers: readonly OidcIssuer[],
  token: string,
  now: number,
): Promise<Account> {
  const config = issuers.find((one) => one.audience !== null && one.issuer === issuerOf(token));
  if (config === undefined || config.audience === null)
    throw unauthorized('This gateway does not accept tokens of this issuer.');
  const claims = await verifyToken(config, token, config.audience, now);
  try {
    const { account } = await findOrCreateUser(env, config, claims, now);
    return { ...account, expiresAt: (claims.exp ?? 0) * 1000 };
  } catch (error) {
    // A user that is not admitted gets 401 here, as for an invalid key, and not 403.
    if (error instanceof ApiError && error.code === 'permission_denied') throw unauthorized(error.message);
    throw error;
  }
}

/**
 * Reads the issuer from a token that is not verified yet. Only used to select the issuer with which the token is then
 * verified.
 */
function issuerOf(token: string): string | undefined {
  try {
    return decodeJwt(token).iss;
  } catch {
    return undefined;
  }
}
