/**
 * Browser sessions that began with an API key. The session's cookie contains the encrypted key, and no script can read
 * it.
 */

import * as z from 'zod';
import type { Env } from '../../env.ts';
import type { HttpRequest } from '../../http/http-request.ts';
import { decryptText, encryptText } from '../encrypt-text.ts';
import { installationSecret } from '../installation-secret.ts';
import { requireSameOrigin, SESSION_MS, sessionCookieOf } from './login-session.ts';

const PREFIX = 'key.';
/** Maximum characters of the cookie. The longest encrypted key has about 500 characters. */
const COOKIE_MAX_CHARS = 1024;

const sealedSchema = z.object({ key: z.string(), until: z.number() });

/** Returns the cookie's value. If the key is revoked, the session ends too. */
export async function sealKey(env: Pick<Env, 'DB'>, key: string, now: number, secure: boolean): Promise<string> {
  const text = JSON.stringify({ key, until: now + SESSION_MS });
  return PREFIX + (await encryptText(await installationSecret(env), purposeOf(secure), text));
}

const purposeOf = (secure: boolean) => (secure ? 'key' : 'key without TLS');

/**
 * Returns the key in a request's session cookie; undefined if the session is not of this kind, or has ended.
 * @throws ApiError 403 if another site made the browser send the cookie; 503 if D1 cannot be reached
 */
export async function keyOfSession(
  env: Pick<Env, 'DB'>,
  request: HttpRequest,
  now: number,
): Promise<string | undefined> {
  const cookie = sessionCookieOf(request);
  if (!cookie?.value.startsWith(PREFIX) || cookie.value.length > COOKIE_MAX_CHARS) return undefined;
  requireSameOrigin(request);
  const text = await decryptText(
    await installationSecret(env),
    purposeOf(cookie.secure),
    cookie.value.slice(PREFIX.length),
  );
  if (text === undefined) return undefined;
  const { key, until } = sealedSchema.parse(JSON.parse(text));
  return until > now ? key : undefined;
}
