/** Sessions of browsers: a random token in a cookie, its hash in D1. */

import { and, eq, gt, lt } from 'drizzle-orm';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import type { Env } from '../../env.ts';
import { basePathOf } from '../../http/base-path.ts';
import type { HttpRequest } from '../../http/http-request.ts';
import { type Account, unauthorized } from '../account.ts';
import { sessions } from '../account-tables.ts';
import { database, queryOrUnavailable } from '../database.ts';
import { findUser } from '../find-key.ts';
import { newInstallationSecret, sha256Hex } from '../secrets.ts';

/**
 * Name of the cookie for browsers that use TLS. The prefix prevents other hosts of the domain from setting it (RFC
 * 6265bis §4.1.3.2).
 */
export const SESSION_COOKIE = '__Host-otela-session';
/**
 * Name of the cookie below a path of an origin that others share. The prefix `__Host-` would send it to all of them. It
 * is not read at the root of an origin, where another host of the domain could set it.
 */
const PATH_SESSION_COOKIE = '__Secure-otela-session';
/**
 * Name of the cookie at a gateway without TLS, for example on a laptop. A token of one cookie is never valid in the
 * other.
 */
const PLAIN_SESSION_COOKIE = 'otela-session';
/** Duration of a session: a working day. */
export const SESSION_MS = 12 * 60 * 60_000;
const TOKEN = /^[\w-]{43}$/;

/** A session's cookie. Its name depends on whether the browser uses TLS. */
interface SessionCookie {
  value: string;
  secure: boolean;
}

export function sessionCookieOf(request: HttpRequest): SessionCookie | undefined {
  const value = cookieOf(request, basePathOf(request) === '' ? SESSION_COOKIE : PATH_SESSION_COOKIE);
  if (value !== undefined) return { value, secure: true };
  const plain = cookieOf(request, PLAIN_SESSION_COOKIE);
  return plain === undefined ? undefined : { value: plain, secure: false };
}

/** How the browser that sent a request sees the gateway. */
export interface BrowserView {
  /** The browser uses TLS. */
  secure: boolean;
  /** As `basePathOf` returns it. */
  basePath: string;
}

export function sessionCookieText(value: string, maxAgeMs: number, view: BrowserView): string {
  const encrypted = view.basePath === '' ? SESSION_COOKIE : PATH_SESSION_COOKIE;
  return cookieText(view.secure ? encrypted : PLAIN_SESSION_COOKIE, value, maxAgeMs, view);
}

function hashOf(token: string, secure: boolean): string {
  return sha256Hex(secure ? token : `without TLS ${token}`);
}

function tokenOf(request: HttpRequest): { hash: string } | undefined {
  const cookie = sessionCookieOf(request);
  return cookie !== undefined && TOKEN.test(cookie.value) ? { hash: hashOf(cookie.value, cookie.secure) } : undefined;
}

/** Opens a session and returns its token, which only the browser keeps. */
export async function openSession(env: Pick<Env, 'DB'>, userId: string, now: number, secure = true): Promise<string> {
  const token = newInstallationSecret();
  const db = database(env);
  const row = { hash: hashOf(token, secure), userId, createdAt: now, expiresAt: now + SESSION_MS };
  await queryOrUnavailable(
    db.batch([db.delete(sessions).where(lt(sessions.expiresAt, now)), db.insert(sessions).values(row)]),
  );
  return token;
}

export async function closeSession(env: Pick<Env, 'DB'>, request: HttpRequest): Promise<void> {
  const token = tokenOf(request);
  if (token !== undefined)
    await queryOrUnavailable(database(env).delete(sessions).where(eq(sessions.hash, token.hash)));
}

export function hasSession(request: HttpRequest): boolean {
  return sessionCookieOf(request) !== undefined;
}

/**
 * Reads the account of a request's session cookie from D1.
 * @throws ApiError 401 if the session is unknown or ended; 403 if another site made the browser send the cookie; 503 if
 * D1 cannot be reached
 */
export async function sessionAccount(env: Pick<Env, 'DB'>, request: HttpRequest, now: number): Promise<Account> {
  const token = tokenOf(request);
  if (token === undefined) throw unauthorized('Log in, or send a key.');
  requireSameOrigin(request);
  const [row] = await queryOrUnavailable(
    database(env)
      .select()
      .from(sessions)
      .where(and(eq(sessions.hash, token.hash), gt(sessions.expiresAt, now))),
  );
  const found = row === undefined ? 'unknown' : await findUser(env, { id: row.userId });
  if (typeof found === 'object') return found.account;
  throw unauthorized(found === 'disabled' ? 'Your account is disabled.' : 'This session has ended. Log in again.');
}

/**
 * Refuses a change that another site caused. Browsers always send headers that prove the origin, so a request without
 * them does not come from our pages.
 * @throws ApiError 403
 */
export function requireSameOrigin(request: HttpRequest): void {
  if (request.method === 'GET' || request.method === 'HEAD') return;
  const site = request.headers.get('sec-fetch-site');
  if (site !== null) {
    if (site === 'same-origin') return;
  } else {
    const origin = request.headers.get('origin');
    if (origin !== null && hostOf(origin) === new URL(request.url).host) return;
  }
  throw new ApiError('permission_denied', 'A login session may make changes only from this site.');
}

/** Compares hosts without the scheme, because a proxy may terminate TLS. */
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

/** Formats a cookie. */
export function cookieText(name: string, value: string, maxAgeMs: number, { secure, basePath }: BrowserView): string {
  const age = Math.floor(maxAgeMs / 1000);
  return `${name}=${value}; Path=${basePath}/; Max-Age=${age}; HttpOnly; SameSite=Lax${secure ? '; Secure' : ''}`;
}
