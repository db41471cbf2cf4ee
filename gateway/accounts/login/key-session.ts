/** Browsers that logged in with an API key: the key itself, sealed, in the session's cookie, which no script can read. */

import * as z from 'zod';
import type { Env } from '../../env.ts';
import type { HttpRequest } from '../../http/http-request.ts';
import { decryptText, encryptText } from '../encrypt-text.ts';
import { installationSecret } from '../installation.ts';
import { requireSameOrigin, SESSION_MS, sessionCookieOf } from './session.ts';

const PREFIX = 'key.';
/** A sealed key of the longest kind has about 500. */
const COOKIE_MAX_CHARS = 1024;

const sealedSchema = z.object({ key: z.string(), until: z.number() });

/** The cookie's value. Revoking the key ends the session, as it ends the key. */
export async function sealKey(env: Pick<Env, 'DB'>, key: string, now: number, secure: boolean): Promise<string> {
  const text = JSON.stringify({ key, until: now + SESSION_MS });
  return PREFIX + (await encryptText(await installationSecret(env), purposeOf(secure), text));
}

const purposeOf = (secure: boolean) => (secure ? 'key' : 'key without TLS');

/**
 * The key behind a request's session cookie; undefined where the session is of another kind, or over.
 * @throws ApiError 403 where another site made the browser send it; 503 when D1 cannot say
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
