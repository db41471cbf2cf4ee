/**
 * Cross-origin resource sharing (CORS) for `/v1`: a page of another origin may call the API with a key. It can never
 * use the session cookie, because no response has `access-control-allow-credentials`.
 * https://fetch.spec.whatwg.org/#http-cors-protocol
 */
import { ApiError } from '../../shared/openai/api-errors.ts';
import { quoteForMessage } from '../../shared/openai/quote-for-message.ts';
import type { Env } from '../env.ts';
import { readOrigins } from '../environment-checks.ts';
import type { HttpRequest } from './http-request.ts';

type CrossOriginEnv = Pick<Env, 'CORS_ORIGINS'>;
type CrossOriginRequest = Pick<HttpRequest, 'method' | 'headers'>;

/** How long a browser may reuse the response to a preflight. Chromium keeps none longer than two hours. */
const PREFLIGHT_MAX_AGE_S = 7200;
const METHODS = 'GET, HEAD, POST, DELETE';
/** In `access-control-allow-headers`, `*` does not include `authorization`. */
const REQUEST_HEADERS = 'authorization, *';

/**
 * The headers that let a page of another origin read a response; empty for other requests, and for a page that must not
 * read it. A response to a request with a cookie has none. A successful response to a request without a key has none
 * either: a page must not read a registry that a gateway inside an institution shows without a key.
 */
export function crossOriginHeaders(
  env: CrossOriginEnv,
  { headers }: Pick<CrossOriginRequest, 'headers'>,
  status: number,
): Record<string, string> {
  const origin = headers.get('origin');
  if (origin === null || headers.get('cookie') !== null) return {};
  const hasKey = headers.get('authorization') !== null || headers.get('x-api-key') !== null;
  const allowed = hasKey || status >= 400 ? allowedOrigin(env, origin) : undefined;
  if (allowed === undefined) return {};
  return { 'access-control-allow-origin': allowed, 'access-control-expose-headers': '*', vary: 'origin' };
}

/**
 * The response to a preflight, which browsers send without a key and without cookies. Undefined for other requests.
 * @throws ApiError 403 if pages of the origin may not call this gateway
 */
export function preflightResponse(env: CrossOriginEnv, { method, headers }: CrossOriginRequest): Response | undefined {
  const origin = headers.get('origin');
  if (method !== 'OPTIONS' || origin === null || headers.get('access-control-request-method') === null)
    return undefined;
  const allowed = allowedOrigin(env, origin);
  if (allowed === undefined) {
    const message = `Pages of ${quoteForMessage(origin)} may not call this gateway: its operator has not listed the origin in CORS_ORIGINS.`;
    throw new ApiError('permission_denied', message);
  }
  return new Response(null, {
    status: 204,
    headers: {
      'access-control-allow-origin': allowed,
      'access-control-allow-methods': METHODS,
      'access-control-allow-headers': REQUEST_HEADERS,
      'access-control-max-age': String(PREFLIGHT_MAX_AGE_S),
      vary: 'origin',
    },
  });
}

/** The value of `access-control-allow-origin`; undefined if the origin is not allowed. */
function allowedOrigin({ CORS_ORIGINS }: CrossOriginEnv, origin: string): string | undefined {
  const text = CORS_ORIGINS?.trim() || '*';
  if (text === '*') return '*';
  return readOrigins(text)?.includes(origin) ? origin : undefined;
}
