import { ApiError } from '../../../shared/openai/api-errors.ts';
import type { Env } from '../../env.ts';
import type { OidcIssuer } from './oidc-config.ts';

/**
 * Returns the client secret of an issuer from the environment variable, which is JSON: `{"https://issuer": "secret"}`.
 */
export function clientSecret(env: Pick<Env, 'OIDC_CLIENT_SECRETS'>, { issuer }: OidcIssuer): string | undefined {
  if (env.OIDC_CLIENT_SECRETS === undefined) return undefined;
  try {
    const secrets: unknown = JSON.parse(env.OIDC_CLIENT_SECRETS);
    const [, secret] = Object.entries(secrets ?? {}).find(([name]) => name === issuer) ?? [];
    return typeof secret === 'string' ? secret : undefined;
  } catch {
    throw new ApiError('internal_error', 'OIDC_CLIENT_SECRETS is not JSON.');
  }
}
