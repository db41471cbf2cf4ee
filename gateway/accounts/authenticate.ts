/** Authentication: finds the account of a request's key. If the account is cached, no store is read. */

import { timingSafeEqual } from 'node:crypto';
import { ApiError } from '../../shared/openai/api-errors.ts';
import type { Env } from '../env.ts';
import type { HttpRequest } from '../http/http-request.ts';
import { ACCOUNT_CACHED_MS, type Account, BOOTSTRAP_ACCOUNT, unauthorized } from './account.ts';
import { findKey, type KeyRefusal } from './find-key.ts';
import { type GatewaySettings, isAccountStale, readGatewaySettings } from './gateway-settings.ts';
import { keyOfSession } from './login/key-cookie.ts';
import { hasSession, sessionAccount } from './login/login-session.ts';
import { isToken, tokenAccount } from './login/oidc-bearer-token.ts';
import type { OidcIssuer } from './login/oidc-config.ts';
import { isSecret, KEY_PREFIX, sha256Hex } from './secrets.ts';

type AuthEnv = Pick<Env, 'DB' | 'ADMIN_KEY_SHA256'> & Partial<Pick<Env, 'REGISTRY' | 'PROCESSES' | 'MAX_STALE_MS'>>;

/** Maximum cached accounts; each needs about 600 bytes. */
const CACHED_MAX = 10_000;
/**
 * How long a refused key is remembered. The time is short, because a client may send a new key before D1 has its row.
 */
const REFUSED_MS = 30_000;
const REFUSED_MAX = 10_000;
/**
 * While the account store cannot be reached, known keys wait for it once in this time, because a wait may take seconds.
 */
const UNREACHABLE_MS = 2_000;
/** Maximum characters of an API key. A longer value is a token of an identity provider, or it is refused. */
const KEY_MAX_CHARS = 256;

interface Expiring<T> {
  value: T;
  until: number;
}

/**
 * False if the entry has expired, or if it expires more than `ms` from now: then the clock was set back after the entry
 * was written.
 */
function isKept({ until }: Expiring<unknown>, ms: number, now: number): boolean {
  return until > now && until - now <= ms;
}

/**
 * Accounts that this isolate used recently, oldest first. Indexed by the key itself, in memory only and for at most ten
 * minutes, because hashing the key (30 µs) was the most expensive part of a request with a cached account. V8's string
 * hash is seeded, so the duration of a look-up does not help to guess a key.
 */
const accounts = new Map<string, Expiring<Account>>();
/** Refused keys. Separate from the accounts, so that a flood of wrong keys evicts only wrong keys. */
const refused = new Map<string, Expiring<KeyRefusal>>();
/** When the account store could not be reached for a known key; milliseconds since the epoch. */
let unreachableAt = Number.NEGATIVE_INFINITY;

/**
 * Finds the account of a request's key. Returns a cached account directly, not as a promise, if `settings` (from the
 * registry's snapshot) contain no change of the account that is later than the cached copy. Errors are thrown, or
 * reject the promise. `now` is in milliseconds.
 * @throws ApiError 401 `invalid_api_key`; 403 if another site made a browser send its session cookie; 503 if the
 * account is not cached and D1 cannot be reached
 */
export function authenticate(
  env: AuthEnv,
  request: HttpRequest,
  settings: GatewaySettings,
  now: number,
): Account | Promise<Account> {
  const account = accountOf(env, request, settings, now);
  if (account instanceof Promise) return account.then((found) => accepted(request, found));
  return accepted(request, account);
}

function accepted(request: HttpRequest, account: Account): Account {
  request.accepted?.(account.userId ?? account.keyId);
  return account;
}

function accountOf(
  env: AuthEnv,
  request: HttpRequest,
  settings: GatewaySettings,
  now: number,
): Account | Promise<Account> {
  const key = presentedKey(request);
  if (key === undefined && hasSession(request)) return browserAccount(env, request, now);
  requireKey(key);
  const cached = accounts.get(cacheName(key));
  const known = cached === undefined || isChanged(env, settings, cached.value) ? undefined : cached;
  if (known !== undefined && isKept(known, ACCOUNT_CACHED_MS, now)) return known.value;
  const hash = sha256Hex(key);
  const wrong = refused.get(hash);
  if (wrong !== undefined && isKept(wrong, REFUSED_MS, now)) throw refusal(wrong.value);
  const stale = known !== undefined && isUsableStale(env, known, now) ? known.value : undefined;
  if (stale !== undefined && now >= unreachableAt && now - unreachableAt < UNREACHABLE_MS) return stale;
  const found = isToken(key) ? lookUpToken(env, settings.oidc, key, now) : lookUp(env, key, hash, now);
  if (stale === undefined) return found;
  return found.catch((error: unknown) => {
    if (!isUnavailable(error)) throw error;
    unreachableAt = now;
    return stale;
  });
}

/**
 * True if an account that is older than ACCOUNT_CACHED_MS may be used while the store cannot be reached: a known key
 * must not stop with the database.
 */
function isUsableStale({ MAX_STALE_MS }: AuthEnv, { value, until }: Expiring<Account>, now: number): boolean {
  if (MAX_STALE_MS === undefined || (value.expiresAt ?? Number.POSITIVE_INFINITY) <= now) return false;
  const ageMs = now - (until - ACCOUNT_CACHED_MS);
  return ageMs >= 0 && ageMs < MAX_STALE_MS;
}

function isUnavailable(error: unknown): boolean {
  return error instanceof ApiError && error.code === 'server_is_overloaded';
}

/** True if the account must be read again: the registry's snapshot or the audit log has a later change of it. */
function isChanged({ PROCESSES }: AuthEnv, settings: GatewaySettings, account: Account): boolean {
  return isAccountStale(settings, account) || PROCESSES?.isStale(account) === true;
}

/** Forgets all cached accounts and refusals. */
export function forgetAccounts(): void {
  accounts.clear();
  refused.clear();
}

/** Like `authenticate`, but reads D1 each time, because administrative requests are rare and powerful. */
export async function authenticateUncached(env: AuthEnv, request: HttpRequest, now: number): Promise<Account> {
  return accepted(request, await readAccount(env, request, now));
}

async function readAccount(env: AuthEnv, request: HttpRequest, now: number): Promise<Account> {
  const key = presentedKey(request);
  if (key === undefined && hasSession(request)) return browserAccount(env, request, now);
  requireKey(key);
  if (isToken(key)) return tokenAccount(env, (await readGatewaySettings(env, now)).oidc, key, now);
  return lookUp(env, key, sha256Hex(key), now);
}

/** The account of a browser session, which began with an API key or a login at an identity provider. */
async function browserAccount(env: AuthEnv, request: HttpRequest, now: number): Promise<Account> {
  const key = await keyOfSession(env, request, now);
  return key === undefined ? sessionAccount(env, request, now) : keyAccount(env, key, now);
}

/** Reads the account of a key from D1. @throws ApiError 401, 503 */
export async function keyAccount(env: AuthEnv, key: string, now: number): Promise<Account> {
  requireKey(key);
  return lookUp(env, key, sha256Hex(key), now);
}

async function lookUpToken(env: AuthEnv, issuers: readonly OidcIssuer[], token: string, now: number): Promise<Account> {
  const account = await tokenAccount(env, issuers, token, now).catch((error: unknown) => {
    if (!isUnavailable(error)) accounts.delete(cacheName(token));
    throw error;
  });
  return remember(token, account, now);
}

async function lookUp(env: AuthEnv, key: string, hash: string, now: number): Promise<Account> {
  if (isBootstrap(env, hash)) return BOOTSTRAP_ACCOUNT;
  if (!isSecret(key, KEY_PREFIX)) throw refusal('unknown');
  // Concurrent look-ups of one key do not share a promise: if the request that started the look-up is cancelled, its
  // promise never settles.
  const answer = await findKey(env, { hash }, now);
  if (typeof answer === 'string') {
    accounts.delete(cacheName(key));
    keep(refused, REFUSED_MAX, hash, { value: answer, until: now + REFUSED_MS });
    throw refusal(answer);
  }
  return remember(key, answer, now);
}

function remember(key: string, account: Account, now: number): Account {
  const until = Math.min(now + ACCOUNT_CACHED_MS, account.expiresAt ?? Number.POSITIVE_INFINITY);
  keep(accounts, CACHED_MAX, cacheName(key), { value: account, until });
  return account;
}

/**
 * Returns the name under which a key is cached. A token of an identity provider is hashed, because ten thousand tokens
 * of some kilobytes would fill an isolate's memory.
 */
function cacheName(key: string): string {
  return key.length <= KEY_MAX_CHARS ? key : sha256Hex(key);
}

function keep<T>(map: Map<string, Expiring<T>>, max: number, name: string, entry: Expiring<T>): void {
  map.delete(name);
  map.set(name, entry);
  for (const oldest of map.keys()) {
    if (map.size <= max) return;
    map.delete(oldest);
  }
}

function isBootstrap(env: AuthEnv, hash: string): boolean {
  const expected = env.ADMIN_KEY_SHA256?.trim().toLowerCase();
  if (expected === undefined || !/^[0-9a-f]{64}$/.test(expected)) return false;
  const bytes = new TextEncoder();
  return timingSafeEqual(bytes.encode(hash), bytes.encode(expected));
}

/**
 * Returns the secret of `Authorization: Bearer …`, or of `x-api-key`, which Anthropic's SDK sends; undefined if there
 * is neither.
 */
export function presentedKey(request: HttpRequest): string | undefined {
  const header = request.headers.get('authorization');
  if (header === null) return request.headers.get('x-api-key')?.trim() || undefined;
  return /^bearer +(\S+)$/i.exec(header.trim())?.[1];
}

function requireKey(key: string | undefined): asserts key is string {
  if (key === undefined) {
    throw unauthorized('No API key was given. Send it as "Authorization: Bearer sk-otela-…".');
  }
  if (key.length > KEY_MAX_CHARS && !isToken(key)) throw refusal('unknown');
}

const REFUSALS: Readonly<Record<KeyRefusal, string>> = {
  unknown: 'This gateway does not know this API key.',
  revoked: 'This API key has been revoked.',
  expired: 'This API key has expired.',
  disabled: 'The user or the project of this API key is disabled.',
  lapsed: 'This API key is suspended until its owner logs in again: the owner’s last login is too long ago.',
};

function refusal(reason: KeyRefusal): ApiError {
  return unauthorized(REFUSALS[reason]);
}
