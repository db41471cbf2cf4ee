/** `/login` and `/logout`: authorization code with PKCE (RFC 7636) at one of the configured identity providers. */
import { and, eq, gt, lt } from 'drizzle-orm';
import { type Context, Hono } from 'hono';
import { ApiError } from '../../shared/openai/errors.ts';
import type { Env } from '../env.ts';
import { unauthorized } from './account.ts';
import { asked, database } from './database.ts';
import { discover, exchangeCode, verifyToken } from './oidc.ts';
import type { OidcIssuer } from './oidc-config.ts';
import { arrive } from './people.ts';
import { logins } from './schema.ts';
import { newInstallationSecret as newRandom, sha256Base64url, sha256Hex } from './secrets.ts';
import {
  closeSession,
  cookieOf,
  cookieText,
  openSession,
  SESSION_COOKIE,
  SESSION_MS,
  sessionAccount,
} from './session.ts';
import { readSettings } from './settings.ts';

type LoginContext = Context<{ Bindings: Env }>;

const STATE_COOKIE = 'otela-login';
const LOGIN_MS = 10 * 60_000;
/** Longer paths to go back to are nobody's. */
const RETURN_MAX = 512;

export const loginRoutes = new Hono<{ Bindings: Env }>();

loginRoutes.get('/login', begin);
loginRoutes.get('/login/callback', end);
loginRoutes.post('/logout', async (c) => {
  await sessionAccount(c.env, c.req.raw, Date.now()); // refuses what other sites make a browser send
  await closeSession(c.env, c.req.raw);
  const cookie = cookieText(SESSION_COOKIE, '', 0, await isSecure(c));
  return new Response(null, { status: 204, headers: { 'set-cookie': cookie } });
});

/** `GET /login?issuer=…&return_to=/…` */
async function begin(c: LoginContext): Promise<Response> {
  const now = Date.now();
  const { oidc, publicUrl } = await readSettings(c.env, now);
  const named = c.req.query('issuer');
  if (oidc.length === 0) throw new ApiError('not_found', 'This gateway has no identity provider configured.');
  if (named === undefined && oidc.length > 1) return choice(c, oidc);
  const config = named === undefined ? oidc[0] : oidc.find(({ issuer }) => issuer === named);
  if (config === undefined) throw new ApiError('invalid_request', 'issuer: is none of the configured ones.');
  const { authorization_endpoint } = await discover(config, now);
  const [state, nonce, verifier] = [newRandom(), newRandom(), newRandom()];
  const db = database(c.env);
  const returnTo = localPath(c.req.query('return_to'));
  const row = { hash: sha256Hex(state), issuer: config.issuer, nonce, verifier, returnTo, expiresAt: now + LOGIN_MS };
  await asked(db.batch([db.delete(logins).where(lt(logins.expiresAt, now)), db.insert(logins).values(row)]));
  const url = new URL(authorization_endpoint);
  const parameters = {
    response_type: 'code',
    client_id: config.client_id,
    redirect_uri: redirectUri(c, publicUrl),
    scope: config.scope,
    state,
    nonce,
    code_challenge: sha256Base64url(verifier),
    code_challenge_method: 'S256',
  };
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  const cookie = cookieText(STATE_COOKIE, state, LOGIN_MS, await isSecure(c));
  return redirect(url.href, [cookie]);
}

/** Back from the provider. The state is in the URL and in the cookie of the browser that began, and good for once. */
async function end(c: LoginContext): Promise<Response> {
  const now = Date.now();
  const { state, code, iss, error } = c.req.query();
  if (state === undefined || state !== cookieOf(c.req.raw, STATE_COOKIE)) {
    throw unauthorized('This login was not begun in this browser, or too long ago. Begin at /login.');
  }
  const db = database(c.env);
  const where = and(eq(logins.hash, sha256Hex(state)), gt(logins.expiresAt, now));
  const [login] = await asked(db.delete(logins).where(where).returning());
  if (login === undefined) throw unauthorized('This login has ended already, or it took too long. Begin at /login.');
  if (error !== undefined) throw unauthorized('The identity provider refused this login.');
  const { oidc, publicUrl } = await readSettings(c.env, now);
  const config = oidc.find(({ issuer }) => issuer === login.issuer);
  // RFC 9207: an answer of another provider than the one that was asked.
  if (config === undefined || code === undefined || (iss !== undefined && iss !== login.issuer)) {
    throw unauthorized('The identity provider’s answer does not belong to this login.');
  }
  const secret = clientSecret(c.env, config);
  const exchange = { code, verifier: login.verifier, redirectUri: redirectUri(c, publicUrl), secret };
  const token = await exchangeCode(config, exchange, now);
  const claims = await verifyToken(config, token, config.client_id, now);
  if (claims.nonce !== login.nonce) throw unauthorized('The identity provider’s answer does not belong to this login.');
  const { user } = await arrive(c.env, config, claims, now);
  const secure = await isSecure(c);
  const session = await openSession(c.env, user.id, now);
  return redirect(login.returnTo, [
    cookieText(SESSION_COOKIE, session, SESSION_MS, secure),
    cookieText(STATE_COOKIE, '', 0, secure),
  ]);
}

function redirect(location: string, cookies: string[]): Response {
  const headers = new Headers({ location, 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' });
  for (const cookie of cookies) headers.append('set-cookie', cookie);
  return new Response(null, { status: 302, headers });
}

/** Which of several; plain links, no script. */
function choice(c: LoginContext, issuers: readonly OidcIssuer[]): Response {
  const returnTo = encodeURIComponent(localPath(c.req.query('return_to')));
  const links = issuers.map(({ issuer, name }) => {
    const href = `/login?issuer=${encodeURIComponent(issuer)}&return_to=${returnTo}`;
    return `<li><a href="${href}">${escaped(name)}</a></li>`;
  });
  const page = `<!doctype html><meta charset="utf-8"><title>Log in</title><h1>Log in with</h1><ul>${links.join('')}</ul>`;
  const policy = "default-src 'none'; frame-ancestors 'none'";
  return c.html(page, 200, { 'content-security-policy': policy, 'cache-control': 'no-store' });
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}

/** Somewhere on this site: never another one, however browsers read slashes and backslashes. */
function localPath(text: string | undefined): string {
  if (text === undefined || text.length > RETURN_MAX || !/^\/(?![/\\])[\x21-\x7e]*$/.test(text)) return '/';
  return text;
}

function redirectUri(c: LoginContext, publicUrl: string | undefined): string {
  return `${(publicUrl ?? new URL(c.req.url).origin).replace(/\/$/, '')}/login/callback`;
}

async function isSecure(c: LoginContext): Promise<boolean> {
  const { publicUrl } = await readSettings(c.env);
  return (publicUrl ?? c.req.url).startsWith('https:');
}

/** Of confidential clients, in the environment: `{"https://issuer": "secret"}`. */
function clientSecret(env: Pick<Env, 'OIDC_CLIENT_SECRETS'>, { issuer }: OidcIssuer): string | undefined {
  if (env.OIDC_CLIENT_SECRETS === undefined) return undefined;
  try {
    const secrets: unknown = JSON.parse(env.OIDC_CLIENT_SECRETS);
    const [, secret] = Object.entries(secrets ?? {}).find(([name]) => name === issuer) ?? [];
    return typeof secret === 'string' ? secret : undefined;
  } catch {
    throw new ApiError('internal_error', 'OIDC_CLIENT_SECRETS is not JSON.');
  }
}
