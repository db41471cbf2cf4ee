/** OpenID Connect for a relying party: discovery, keys, codes and tokens. */
import { createLocalJWKSet, errors, type JSONWebKeySet, type JWTPayload, jwtVerify } from 'jose';
import * as z from 'zod';
import { readAtMost } from '../../../shared/collections/read-at-most.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { parseJson, tryParseJson } from '../../../shared/text/parse-json.ts';
import { AdaptiveTimeout } from '../../../shared/timing/adaptive-timeout.ts';
import { isRecent } from '../../../shared/timing/is-recent.ts';
import { startTimer } from '../../platform/start-timer.ts';
import { waitClock } from '../../platform/wait-clock.ts';
import { unauthorized } from '../account.ts';
import type { OidcIssuer } from './oidc-config.ts';

/** Only asymmetric algorithms are accepted: neither `none` nor a signature with a secret that clients know. */
const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
];
const CLOCK_SKEW_S = 60;
const FETCH = { leastMs: 5_000, mostMs: 30_000 };
const answers = new AdaptiveTimeout(FETCH);
const ANSWER_MAX_BYTES = 512 * 1024;
const DISCOVERY_CACHE_MS = 60 * 60_000;
const KEYS_CACHE_MS = 10 * 60_000;
/** A token with an unknown key makes the gateway read the issuer's keys again, at most once in this time. */
const KEYS_COOLDOWN_MS = 10_000;

const endpoint = z.url({ protocol: /^https?$/ });
const discoverySchema = z.looseObject({
  issuer: z.string(),
  authorization_endpoint: endpoint,
  token_endpoint: endpoint,
  jwks_uri: endpoint,
  /** True if every authorization response contains `iss` (RFC 9207 §3). */
  authorization_response_iss_parameter_supported: z.boolean().default(false),
});
type Discovery = z.infer<typeof discoverySchema>;
const keysSchema = z.looseObject({ keys: z.array(z.looseObject({ kty: z.string() })).max(100) });
const refreshTokenSchema = z.string().min(1).max(16_384);
const tokensSchema = z.looseObject({
  id_token: z.string().max(32_768),
  // Of another form, it is useless, but the login is not.
  refresh_token: refreshTokenSchema.optional().catch(undefined),
});
const refreshedSchema = tokensSchema.extend({ id_token: tokensSchema.shape.id_token.optional() });
const oauthErrorSchema = z.looseObject({ error: z.string() });

interface CachedResult<T> {
  value: T;
  at: number;
}

/**
 * Cached discovery documents by issuer, at most 16. The map contains results and not promises, because on Workers only
 * the request that created a promise may await it.
 */
const discoveries = new Map<string, CachedResult<Discovery>>();
const keySets = new Map<string, CachedResult<JSONWebKeySet>>();

/**
 * Maximum concurrent requests for the keys of one issuer. Each token with an unknown key causes a request; without a
 * maximum, thousands could wait for a slow provider. `keyQuestions` counts the running requests by issuer.
 */
const KEY_QUESTIONS_MAX = 8;
const keyQuestions = new Map<string, number>();
/**
 * If KEY_QUESTIONS_MAX requests run and no keys are cached, further callers check at this interval whether the keys
 * have arrived.
 */
const KEYS_POLL_MS = 50;

/**
 * After a failure, a provider is not called for this time. Otherwise an unauthenticated client could send many tokens
 * that name the provider, and the gateway would wait several seconds for each.
 */
const FAILURE_CACHE_MS = 1_000;
const failures = new Map<string, CachedResult<ApiError>>();

/** Calls `ask` unless the last call to this issuer failed recently. @throws ApiError 503 */
async function unlessFailed<T>(issuer: string, now: number, ask: () => Promise<T>): Promise<T> {
  const failed = failures.get(issuer);
  if (failed !== undefined && isRecent(FAILURE_CACHE_MS, failed.at, now)) throw failed.value;
  try {
    return await ask();
  } catch (error) {
    if (error instanceof ApiError) keep(failures, issuer, error, now);
    throw error;
  }
}

/** @throws ApiError 503 if the provider does not answer as OpenID Connect requires */
export async function discover({ issuer }: OidcIssuer, now: number): Promise<Discovery> {
  const known = discoveries.get(issuer);
  if (known !== undefined && isRecent(DISCOVERY_CACHE_MS, known.at, now)) return known.value;
  const url = `${issuer.replace(/\/$/, '')}/.well-known/openid-configuration`;
  const value = await unlessFailed(issuer, now, async () => checked(await fetchJson(url, {}, discoverySchema), issuer));
  keep(discoveries, issuer, value, now);
  return value;
}

/** @throws ApiError 503 if the document is not this issuer's */
function checked(value: Discovery, issuer: string): Discovery {
  // OpenID Connect Discovery 1.0 §4.3: without this check one provider could act for another.
  if (value.issuer !== issuer) throw unavailable(`its issuer is ${value.issuer.slice(0, 200)}, not the configured one`);
  for (const target of [value.authorization_endpoint, value.token_endpoint, value.jwks_uri]) {
    if (issuer.startsWith('https:') && !target.startsWith('https:')) throw unavailable('it has endpoints without TLS');
  }
  return value;
}

async function keysOf(config: OidcIssuer, now: number, maxAgeMs: number): Promise<JSONWebKeySet> {
  const { issuer } = config;
  for (;;) {
    const known = keySets.get(issuer);
    if (known !== undefined && isRecent(maxAgeMs, known.at, now)) return known.value;
    if ((keyQuestions.get(issuer) ?? 0) < KEY_QUESTIONS_MAX) break;
    if (known !== undefined) return known.value;
    await new Promise<void>((resolve) => void startTimer(KEYS_POLL_MS, resolve));
  }
  keyQuestions.set(issuer, (keyQuestions.get(issuer) ?? 0) + 1);
  try {
    const { jwks_uri } = await discover(config, now);
    const value = (await unlessFailed(issuer, now, () => fetchJson(jwks_uri, {}, keysSchema))) as JSONWebKeySet;
    keep(keySets, issuer, value, now);
    return value;
  } finally {
    const left = (keyQuestions.get(issuer) ?? 1) - 1;
    if (left > 0) keyQuestions.set(issuer, left);
    else keyQuestions.delete(issuer);
  }
}

function keep<T>(map: Map<string, CachedResult<T>>, name: string, value: T, at: number): void {
  if (map.size >= 16 && !map.has(name)) map.clear();
  map.set(name, { value, at });
}

/**
 * Verifies a token that `config`'s issuer made for `audience`, and returns its claims. Clocks may differ by a minute.
 * @throws ApiError 401 with the reason; 503 if the issuer's keys are not available
 */
export async function verifyToken(
  config: OidcIssuer,
  token: string,
  audience: string,
  now: number,
): Promise<JWTPayload & { sub: string }> {
  const options = {
    issuer: config.issuer,
    audience,
    algorithms: ALGORITHMS,
    clockTolerance: CLOCK_SKEW_S,
    currentDate: new Date(now),
    requiredClaims: ['exp', 'sub'],
  };
  const verify = async (maxAgeMs: number) =>
    jwtVerify(token, createLocalJWKSet(await keysOf(config, now, maxAgeMs)), options);
  try {
    const { payload } = await verify(KEYS_CACHE_MS).catch((error: unknown) => {
      // The issuer may have published a new key.
      if (error instanceof errors.JWKSNoMatchingKey) return verify(KEYS_COOLDOWN_MS);
      throw error;
    });
    if (typeof payload.sub !== 'string' || payload.sub === '') throw unauthorized('This token has no subject.');
    return { ...payload, sub: payload.sub };
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw unauthorized(reasonOf(error));
  }
}

function reasonOf(error: unknown): string {
  if (error instanceof errors.JWTExpired) return 'This token has expired.';
  if (error instanceof errors.JWTClaimValidationFailed) return `This token is not for this gateway: "${error.claim}".`;
  return 'This token is not signed by its issuer.';
}

interface CodeExchange {
  code: string;
  verifier: string;
  redirectUri: string;
  /** Client secret of a confidential client; undefined: a public client. */
  secret: string | undefined;
}

/** Exchanges a code for tokens (RFC 6749 §4.1.3, RFC 7636 §4.5). @throws ApiError 401, 503 */
export async function exchangeCode(
  config: OidcIssuer,
  exchange: CodeExchange,
  now: number,
): Promise<z.infer<typeof tokensSchema>> {
  const { token_endpoint } = await discover(config, now);
  const body = new URLSearchParams({
    grant_type: 'authorization_code',
    code: exchange.code,
    redirect_uri: exchange.redirectUri,
    code_verifier: exchange.verifier,
    client_id: config.client_id,
  });
  return fetchJson(
    token_endpoint,
    { method: 'POST', headers: clientHeaders(config, exchange.secret), body },
    tokensSchema,
  );
}

/**
 * Gets new tokens for a refresh token (RFC 6749 §6). `refused`: the provider no longer accepts it, because the person
 * left, the session was ended, or the token is too old.
 * @throws ApiError 503 if the provider did not decide
 */
export async function refreshLogin(
  config: OidcIssuer,
  token: string,
  secret: string | undefined,
  now: number,
): Promise<z.infer<typeof refreshedSchema> | 'refused'> {
  const { token_endpoint } = await discover(config, now);
  const body = new URLSearchParams({ grant_type: 'refresh_token', refresh_token: token, client_id: config.client_id });
  const { status, text } = await fetchBounded(token_endpoint, {
    method: 'POST',
    headers: clientHeaders(config, secret),
    body,
  });
  const answer = text === undefined ? undefined : tryParseJson(text);
  // Only this error is about the person. `invalid_client`, for example, is about the gateway.
  if (status === 400 && oauthErrorSchema.safeParse(answer).data?.error === 'invalid_grant') return 'refused';
  const tokens = refreshedSchema.safeParse(answer).data;
  if (status !== 200 || tokens === undefined) throw unavailable(`it answered ${status}`);
  return tokens;
}

function clientHeaders({ client_id }: OidcIssuer, secret: string | undefined): Record<string, string> {
  const headers = { 'content-type': 'application/x-www-form-urlencoded' };
  if (secret === undefined) return headers;
  const pair = [client_id, secret].map(encodeURIComponent).join(':');
  return { ...headers, authorization: `Basic ${btoa(pair)}` };
}

/** `text` is undefined if the response is larger than ANSWER_MAX_BYTES. @throws ApiError 503 */
async function fetchBounded(
  url: string,
  init: RequestInit,
): Promise<{ status: number; ok: boolean; text: string | undefined }> {
  try {
    const [response, text] = await waitClock.call(answers, async (signal) => {
      const answer = await fetch(url, { ...init, redirect: 'manual', signal });
      const body = await readAtMost(answer.body, ANSWER_MAX_BYTES);
      return [answer, body && new TextDecoder().decode(body)] as const;
    });
    return { status: response.status, ok: response.ok, text };
  } catch (cause) {
    throw unavailable('it does not answer', cause);
  }
}

async function fetchJson<T>(url: string, init: RequestInit, schema: z.ZodType<T>): Promise<T> {
  const { status, ok, text } = await fetchBounded(url, init);
  if (status === 400 || status === 401) throw unauthorized('The identity provider refused this login.');
  if (!ok) throw unavailable(`it answered ${status}`);
  if (text === undefined) throw unavailable(`its response is larger than ${ANSWER_MAX_BYTES} bytes`);
  try {
    return schema.parse(parseJson(text));
  } catch (cause) {
    throw unavailable('its response does not conform to OpenID Connect', cause);
  }
}

function unavailable(why: string, cause?: unknown): ApiError {
  return new ApiError('server_is_overloaded', `The request to the identity provider failed: ${why}.`, { cause });
}
