/** Sessions of browsers: a random token in a cookie, its hash in D1. */

import { and, eq, gt, lt } from 'drizzle-orm';
import { ApiError } from '../../../shared/openai/errors.ts';
import type { Env } from '../../env.ts';
import type { HttpRequest } from '../../http.ts';
import { type Account, unauthorized } from '../account.ts';
import { asked, database } from '../database.ts';
import { findUser } from '../look-up.ts';
import { sessions } from '../schema.ts';
import { newInstallationSecret, sha256Hex } from '../secrets.ts';

export const SESSION_COOKIE = 'otela-session';
/** A working day. */
export const SESSION_MS = 12 * 60 * 60_000;
const TOKEN = /^[\w-]{43}$/;

/** Opens one; the token is for the browser alone. */
export async function openSession(env: Pick<Env, 'DB'>, userId: string, now: number): Promise<string> {
  const token = newInstallationSecret();
  const db = database(env);
  const row = { hash: sha256Hex(token), userId, createdAt: now, expiresAt: now + SESSION_MS };
  await asked(db.batch([db.delete(sessions).where(lt(sessions.expiresAt, now)), db.insert(sessions).values(row)]));
  return token;
}

export async function closeSession(env: Pick<Env, 'DB'>, request: HttpRequest): Promise<void> {
  const token = cookieOf(request, SESSION_COOKIE);
  if (token === undefined || !TOKEN.test(token)) return;
  await asked(
    database(env)
      .delete(sessions)
      .where(eq(sessions.hash, sha256Hex(token))),
  );
}

export function hasSession(request: HttpRequest): boolean {
  return cookieOf(request, SESSION_COOKIE) !== undefined;
}

/**
 * The account behind a request's session cookie, asked of D1.
 * @throws ApiError 401 unknown or over; 403 where another site made the browser send it; 503 when D1 cannot say
 */
export async function sessionAccount(env: Pick<Env, 'DB'>, request: HttpRequest, now: number): Promise<Account> {
  const token = cookieOf(request, SESSION_COOKIE);
  if (token === undefined || !TOKEN.test(token)) throw unauthorized('Log in, or send a key.');
  requireSameOrigin(request);
  const [row] = await asked(
    database(env)
      .select()
      .from(sessions)
      .where(and(eq(sessions.hash, sha256Hex(token)), gt(sessions.expiresAt, now))),
  );
  const found = row === undefined ? 'unknown' : await findUser(env, { id: row.userId });
  if (typeof found === 'object') return found.account;
  throw unauthorized(found === 'disabled' ? 'Your account is disabled.' : 'This session is over. Log in again.');
}

/** What changes something comes from this site: browsers say so; what does not is no browser of ours. @throws ApiError 403 */
export function requireSameOrigin(request: HttpRequest): void {
  if (request.method === 'GET' || request.method === 'HEAD') return;
  const site = request.headers.get('sec-fetch-site');
  if (site !== null) {
    if (site === 'same-origin') return;
  } else {
    const origin = request.headers.get('origin');
    if (origin !== null && hostOf(origin) === new URL(request.url).host) return;
  }
  throw new ApiError('permission_denied', 'A session may change things from this site alone.');
}

/** Without the scheme: TLS may end before us. */
function hostOf(origin: string): string | undefined {
  return URL.canParse(origin) ? new URL(origin).host : undefined;
}

export function cookieOf(request: HttpRequest, name: string): string | undefined {
  for (const part of request.headers.get('cookie')?.split(';') ?? []) {
    const at = part.indexOf('=');
    if (at > 0 && part.slice(0, at).trim() === name) return part.slice(at + 1).trim();
  }
  return undefined;
}

/** `secure`: the browser came by TLS; a gateway on a laptop has none. */
export function cookieText(name: string, value: string, maxAgeMs: number, secure: boolean): string {
  const age = Math.floor(maxAgeMs / 1000);
  return `${name}=${value}; Path=/; Max-Age=${age}; HttpOnly; SameSite=Lax${secure ? '; Secure' : ''}`;
}
