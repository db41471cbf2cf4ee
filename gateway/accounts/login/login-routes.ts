/**
 * `/login` and `/logout`: the authorization code flow with PKCE (RFC 7636) at one of the configured identity providers.
 */
import { type Context, Hono } from 'hono';
import * as z from 'zod';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { errorResponse } from '../../../shared/proxy/error-response.ts';
import type { Env } from '../../env.ts';
import { basePathOf } from '../../http/base-path.ts';
import { responseOf } from '../../http/http-request.ts';
import { readParsedBody } from '../../http/parse-body.ts';
import { requestIdOf } from '../../http/request-id.ts';
import { unauthorized } from '../account.ts';
import { keyAccount } from '../authenticate.ts';
import { decryptText, encryptText } from '../encrypt-text.ts';
import { readGatewaySettings } from '../gateway-settings.ts';
import { installationSecret } from '../installation-secret.ts';
import { newInstallationSecret as newRandom, sha256Base64url, sha256Hex } from '../secrets.ts';
import { clientSecret } from './client-secret.ts';
import { CONFIRMATION_NAME } from './confirmation-object.ts';
import { sealKey } from './key-cookie.ts';
import {
  type BrowserView,
  closeSession,
  cookieOf,
  cookieText,
  openSession,
  requireSameOrigin,
  SESSION_MS,
  sessionCookieText,
} from './login-session.ts';
import { discover, exchangeCode, verifyToken } from './oidc.ts';
import type { OidcIssuer } from './oidc-config.ts';
import { findOrCreateUser } from './oidc-user.ts';

type LoginContext = Context<{ Bindings: Env }>;

/** Names of the login cookie with and without TLS. A value encrypted for one is not valid in the other. */
const LOGIN_COOKIES = {
  login: '__Host-otela-login',
  'login below a path': '__Secure-otela-login',
  'login without TLS': 'otela-login',
} as const;
type LoginPlace = keyof typeof LOGIN_COOKIES;
const placeOf = ({ secure, basePath }: BrowserView): LoginPlace =>
  secure ? (basePath === '' ? 'login' : 'login below a path') : 'login without TLS';
const LOGIN_MS = 10 * 60_000;
/** Maximum characters of the path to which a browser returns after the login. The paths of all pages are shorter. */
const RETURN_MAX = 512;

const loginSchema = z.object({
  state: z.string(),
  issuer: z.string(),
  nonce: z.string(),
  verifier: z.string(),
  returnTo: z.string(),
  redirectUri: z.string(),
  until: z.number(),
});
type Login = z.infer<typeof loginSchema>;

const keySchema = z.strictObject({ key: z.string().min(1).max(256) });

export const loginRoutes = new Hono<{ Bindings: Env }>();

loginRoutes.get('/login', begin);
loginRoutes.get('/login/callback', end);
loginRoutes.get('/login/callback/:issuer', end);
/** `GET /login/providers`: the institutions at which a browser may log in. Public, like the list at `/login`. */
loginRoutes.get('/login/providers', async (c) => {
  const { oidc } = await readGatewaySettings(c.env, Date.now());
  const data = oidc.map(({ issuer, name }) => ({ issuer, name }));
  return c.json({ object: 'list', data }, 200, { 'cache-control': 'no-store' });
});
loginRoutes.post('/login/key', async (c) => {
  requireSameOrigin(c.req.raw);
  const { key } = await readParsedBody(c, keySchema);
  await keyAccount(c.env, key, Date.now());
  const view = await viewOf(c);
  const cookie = sessionCookieText(await sealKey(c.env, key, Date.now(), view.secure), SESSION_MS, view);
  return new Response(null, { status: 204, headers: { 'set-cookie': cookie } });
});
loginRoutes.post('/logout', async (c) => {
  requireSameOrigin(c.req.raw);
  await closeSession(c.env, c.req.raw);
  const cookie = sessionCookieText('', 0, await viewOf(c));
  return new Response(null, { status: 204, headers: { 'set-cookie': cookie } });
});

/** Handles `GET /login?issuer=…&return_to=/…`: sends the browser to the identity provider. */
async function begin(c: LoginContext): Promise<Response> {
  const now = Date.now();
  const { oidc, publicUrl } = await readGatewaySettings(c.env, now);
  const named = c.req.query('issuer');
  if (oidc.length === 0) throw new ApiError('not_found', 'This gateway has no identity provider configured.');
  if (named === undefined && oidc.length > 1) return choice(c, oidc);
  const config = named === undefined ? oidc[0] : oidc.find(({ issuer }) => issuer === named);
  if (config === undefined)
    throw new ApiError('invalid_request', 'issuer: is not one of the configured identity providers.');
  const metadata = await discover(config, now);
  // RFC 9700 §4.4.2: if there are several providers, one could present another's code as its own. So each response must
  // name its provider: by the parameter `iss`, or by a callback address that only this provider has.
  const answersNameIssuer = oidc.length === 1 || metadata.authorization_response_iss_parameter_supported;
  const redirectUri = callbackUri(c, publicUrl, answersNameIssuer ? undefined : config);
  const [state, nonce, verifier] = [newRandom(), newRandom(), newRandom()];
  const returnTo = localPath(c);
  const until = now + LOGIN_MS;
  const login: Login = { state, issuer: config.issuer, nonce, verifier, returnTo, redirectUri, until };
  const view = await viewOf(c);
  const place = placeOf(view);
  const sealed = await encryptText(await installationSecret(c.env), place, JSON.stringify(login));
  const url = new URL(metadata.authorization_endpoint);
  const parameters = {
    response_type: 'code',
    client_id: config.client_id,
    redirect_uri: redirectUri,
    scope: scopeOf(config),
    state,
    nonce,
    code_challenge: sha256Base64url(verifier),
    code_challenge_method: 'S256',
  };
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value);
  const cookie = cookieText(LOGIN_COOKIES[place], sealed, LOGIN_MS, view);
  return redirect(url.href, [cookie]);
}

/** Handles the browser's return from the provider. The login is over, successful or not, so its cookie is deleted. */
async function end(c: LoginContext): Promise<Response> {
  const view = await viewOf(c);
  const cookie = cookieText(LOGIN_COOKIES[placeOf(view)], '', 0, view);
  try {
    return await finish(c, cookie);
  } catch (error) {
    const response = responseOf(errorResponse(error, requestIdOf(c.req.raw)));
    response.headers.append('set-cookie', cookie);
    return response;
  }
}

async function finish(c: LoginContext, cookie: string): Promise<Response> {
  const now = Date.now();
  const { state, code, iss, error } = c.req.query();
  const login = await begun(c, now);
  if (login === undefined || state !== login.state) {
    throw unauthorized(
      'This login was not started in this browser, has ended, or took too long. Start again at /login.',
    );
  }
  if (error !== undefined) throw unauthorized('The identity provider refused this login.');
  const { oidc } = await readGatewaySettings(c.env, now);
  const config = oidc.find(({ issuer }) => issuer === login.issuer);
  if (config === undefined || code === undefined || !hasPath(login.redirectUri, c.req.path)) throw foreign();
  const { authorization_response_iss_parameter_supported: namesIssuer } = await discover(config, now);
  // RFC 9207 §2.4: refuses a response from a provider to which this login did not go, and a response without the `iss`
  // that this provider always sends.
  if (iss === undefined ? namesIssuer : iss !== login.issuer) throw foreign();
  const secret = clientSecret(c.env, config);
  const exchange = { code, verifier: login.verifier, redirectUri: login.redirectUri, secret };
  const tokens = await exchangeCode(config, exchange, now);
  const claims = await verifyToken(config, tokens.id_token, config.client_id, now);
  // OpenID Connect Core §3.1.3.7: refuses a token that was made for another client of this provider.
  if (claims.azp !== undefined && claims.azp !== config.client_id) throw foreign();
  if (claims.nonce !== login.nonce) throw foreign();
  const { user } = await findOrCreateUser(c.env, config, claims, now, true);
  if (config.confirm_hours !== null) await keepLogin(c, user.id, config, tokens.refresh_token);
  const view = await viewOf(c);
  const session = await openSession(c.env, user.id, now, view.secure);
  return redirect(login.returnTo, [sessionCookieText(session, SESSION_MS, view), cookie]);
}

function foreign(): ApiError {
  return unauthorized('The response of the identity provider does not belong to this login.');
}

/**
 * Returns the login that this browser began. The browser keeps it, encrypted, so a flood of requests to /login does not
 * fill a store.
 */
async function begun(c: LoginContext, now: number): Promise<Login | undefined> {
  const encrypted = placeOf({ secure: true, basePath: basePathOf(c.req.raw) });
  const place = cookieOf(c.req.raw, LOGIN_COOKIES[encrypted]) === undefined ? 'login without TLS' : encrypted;
  const sealed = cookieOf(c.req.raw, LOGIN_COOKIES[place]);
  const text = sealed && (await decryptText(await installationSecret(c.env), place, sealed));
  const login = text ? loginSchema.safeParse(JSON.parse(text)).data : undefined;
  return login === undefined || login.until <= now ? undefined : login;
}

function redirect(location: string, cookies: string[]): Response {
  const headers = new Headers({ location, 'cache-control': 'no-store', 'referrer-policy': 'no-referrer' });
  for (const cookie of cookies) headers.append('set-cookie', cookie);
  return new Response(null, { status: 302, headers });
}

/** Returns the page on which the user chooses an identity provider: plain links, no script. */
function choice(c: LoginContext, issuers: readonly OidcIssuer[]): Response {
  const returnTo = encodeURIComponent(localPath(c));
  const basePath = basePathOf(c.req.raw);
  const links = issuers.map(({ issuer, name }) => {
    const href = `${basePath}/login?issuer=${encodeURIComponent(issuer)}&return_to=${returnTo}`;
    return `<li><a href="${href}">${escaped(name)}</a></li>`;
  });
  const page = `<!doctype html><meta charset="utf-8"><title>Log in</title><h1>Log in with</h1><ul>${links.join('')}</ul>`;
  const policy = "default-src 'none'; frame-ancestors 'none'";
  return c.html(page, 200, { 'content-security-policy': policy, 'cache-control': 'no-store' });
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`);
}

/** OpenID Connect Core §11: `offline_access` asks for a refresh token. */
function scopeOf({ scope, confirm_hours }: OidcIssuer): string {
  const asks = confirm_hours === null || scope.split(' ').includes('offline_access');
  return asks ? scope : `${scope} offline_access`;
}

async function keepLogin(c: LoginContext, user: string, config: OidcIssuer, token: string | undefined): Promise<void> {
  if (token !== undefined) await c.env.CONFIRMATION.getByName(CONFIRMATION_NAME).keep(user, config, token);
  else console.error(`${config.issuer} gave no refresh token: it cannot confirm people that logged in`);
}

/** Returns a path on this site, never another site, however browsers interpret slashes and backslashes. */
function localPath(c: LoginContext): string {
  const text = c.req.query('return_to');
  if (text === undefined || text.length > RETURN_MAX || !/^\/(?![/\\])[\x21-\x7e]*$/.test(text))
    return `${basePathOf(c.req.raw)}/`;
  return text;
}

/**
 * Returns the address to which a provider sends the browser back. With `own`, no other provider has the same address.
 */
function callbackUri(c: LoginContext, publicUrl: string | undefined, own: OidcIssuer | undefined): string {
  const origin = (publicUrl ?? new URL(c.req.url).origin + basePathOf(c.req.raw)).replace(/\/$/, '');
  return `${origin}/login/callback${own === undefined ? '' : `/${sha256Hex(own.issuer).slice(0, 16)}`}`;
}

/** True if the address ends in the path. A public URL may have a path before it, which a proxy removes. */
function hasPath(url: string, path: string): boolean {
  return new URL(url).pathname.endsWith(path);
}

async function viewOf(c: LoginContext): Promise<BrowserView> {
  const { publicUrl } = await readGatewaySettings(c.env);
  return { secure: (publicUrl ?? c.req.url).startsWith('https:'), basePath: basePathOf(c.req.raw) };
}
