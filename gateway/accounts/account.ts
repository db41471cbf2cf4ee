/** A caller's identity, from a key, a login or the environment, and its rights. */

import type { Endpoint } from '../../shared/openai/endpoints.ts';
import { ApiError } from '../../shared/openai/errors.ts';
import type { DataPolicy } from '../../shared/routing/trust.ts';
import type { HttpRequest } from '../http/http-request.ts';
import type { Limits } from './limits/limits.ts';
import type { OwnRouting } from './routing-settings.ts';
import { ROLES, type Role } from './schema.ts';

/**
 * What a key is for. `inference`: /v1 but the registry; `registry`: /v1/registry; `usage`: what it or its user used;
 * `admin:read` and `admin`: /admin, as far as its role goes.
 */
export const ACCOUNT_SCOPES = ['inference', 'registry', 'usage', 'admin:read', 'admin'] as const;
export type AccountScope = (typeof ACCOUNT_SCOPES)[number];

/** How long an isolate believes in one. Changes reach the snapshot within seconds and stay in it for longer (CHANGES_KEPT_MS). */
export const ACCOUNT_CACHED_MS = 10 * 60_000;

/** What one row narrows; undefined narrows nothing. */
export interface Restrictions {
  models: readonly string[] | undefined;
  endpoints: readonly string[] | undefined;
  trustedProviders: readonly string[] | undefined;
  data: DataPolicy | undefined;
}

export interface Account {
  /** `bootstrap` for the operator key of the environment, a user's id for a login. */
  keyId: string;
  /** The key by which a person let this machine in. */
  grantedBy: string | undefined;
  role: Role;
  /** Whose machines a provider's people speak for. */
  provider: string | undefined;
  userId: string | undefined;
  projectId: string | undefined;
  /** Of the person, as access lists name them. */
  groups: readonly string[];
  scopes: readonly AccountScope[] | undefined;
  /** The key's, then its project's. */
  restrictions: readonly Restrictions[];
  /** Undefined where neither the key nor its project has any: then no request of it asks the limits' object. */
  limits: AccountLimits | undefined;
  /** Whether `x-otela-no-track` is obeyed. */
  mayOptOut: boolean;
  /** Streams that break go on at another node, where they can, unless a request says otherwise. */
  resumes: boolean;
  /** How long its requests wait for a model that is being started, where they do not say; milliseconds. */
  startWaitMs: number | undefined;
  /** What the key, then its project, say of how requests are routed. */
  routing: readonly OwnRouting[];
  /** Its project's requests are in the trace export. */
  traced: boolean;
  /** With what its prompts begin with, as ids. */
  prefixes: boolean;
  /** Who pays, sealed: see receipt.ts. */
  seal: string;
  /** Milliseconds since the epoch. */
  expiresAt: number | undefined;
  /** What the store had seen of changes when this was read: see settings.ts. */
  seen: number;
}

export interface AccountLimits {
  /** Names the object that counts: the project's, else the person's, else that of a key without a person. */
  subject: string;
  key: Limits | undefined;
  project: Limits | undefined;
  /** What the person's keys share, within each project by itself; with `userId`. */
  user?: Limits | undefined;
  userId?: string | undefined;
}

export function isRoleAtLeast(role: Role, wanted: Role): boolean {
  return ROLES.indexOf(role) >= ROLES.indexOf(wanted);
}

/** The lower of two roles: a key never does more than its user. */
export function lowerRole(a: Role, b: Role): Role {
  return isRoleAtLeast(a, b) ? b : a;
}

/** @throws ApiError 403 permission_denied */
export function requireScope({ scopes }: Pick<Account, 'scopes'>, ...anyOf: AccountScope[]): void {
  if (scopes === undefined || anyOf.some((scope) => scopes.includes(scope))) return;
  throw new ApiError('permission_denied', `This key lacks the scope "${anyOf.at(-1)}".`);
}

/** The name of an endpoint in allow-lists: its path without `/v1/`. */
export function endpointPathName({ path }: Pick<Endpoint, 'path'>): string {
  return path.slice('/v1/'.length);
}

export function mayCall({ restrictions }: Pick<Account, 'restrictions'>, endpoint: Pick<Endpoint, 'path'>): boolean {
  const name = endpointPathName(endpoint);
  return restrictions.every(({ endpoints }) => endpoints === undefined || endpoints.includes(name));
}

/** @throws ApiError 403 permission_denied */
export function requireEndpoint(
  account: Pick<Account, 'scopes' | 'restrictions'>,
  endpoint: Pick<Endpoint, 'path'>,
): void {
  requireScope(account, 'inference');
  if (!mayCall(account, endpoint)) throw new ApiError('permission_denied', `This key may not call ${endpoint.path}.`);
}

export function mayUseModel({ restrictions }: Pick<Account, 'restrictions'>, model: string): boolean {
  for (const { models } of restrictions) if (models !== undefined && !matchesModelPattern(models, model)) return false;
  return true;
}

/**
 * Asked before anything is said about whether the model exists. `unseen`: the model is what a header says, and the body could
 * name another one to the engine, so it is good for no key with a list. @throws ApiError 403 model_not_allowed
 */
export function requireModelAccess(account: Pick<Account, 'restrictions'>, model: string, unseen: boolean): void {
  if (unseen && account.restrictions.some(({ models }) => models !== undefined)) {
    const message = 'This key has a list of models, so the body must be looked into: leave x-otela-model out.';
    throw new ApiError('model_not_allowed', message, { param: 'x-otela-model' });
  }
  if (mayUseModel(account, model)) return;
  throw new ApiError('model_not_allowed', `This key may not use the model '${model}'.`, { param: 'model' });
}

/** Whether a list of model names holds `model`: a name that ends in `*` stands for all that begin so. */
export function matchesModelPattern(patterns: readonly string[], model: string): boolean {
  return patterns.some((one) => matches(one, model));
}

function matches(pattern: string, model: string): boolean {
  return pattern.endsWith('*') ? model.startsWith(pattern.slice(0, -1)) : pattern === model;
}

const NO_TRACK_HEADER = 'x-otela-no-track';

/**
 * Whether a request is to be counted and not recorded.
 * @throws ApiError 403 where the key may not ask for that, 400 for another word than 1: a wish like this one is not passed over
 */
export function isRecordingDeclined({ mayOptOut }: Pick<Account, 'mayOptOut'>, request: HttpRequest): boolean {
  const wish = request.headers.get(NO_TRACK_HEADER);
  if (wish === null || wish === '0') return false;
  if (wish !== '1')
    throw new ApiError('invalid_request', `${NO_TRACK_HEADER} is 1, or left out.`, { param: NO_TRACK_HEADER });
  if (mayOptOut) return true;
  throw new ApiError('permission_denied', 'This key may not opt out of being tracked: leave x-otela-no-track out.');
}

/** Of the operator key in the environment: everything, whatever D1 says. */
export const BOOTSTRAP_ACCOUNT: Account = {
  keyId: 'bootstrap',
  grantedBy: undefined,
  role: 'operator',
  provider: undefined,
  userId: undefined,
  projectId: undefined,
  groups: [],
  scopes: undefined,
  restrictions: [],
  limits: undefined,
  mayOptOut: true,
  resumes: false,
  startWaitMs: undefined,
  routing: [],
  traced: false,
  prefixes: false,
  seal: '',
  expiresAt: undefined,
  seen: Number.POSITIVE_INFINITY,
};

export function unauthorized(message: string): ApiError {
  return new ApiError('invalid_api_key', message, { headers: { 'www-authenticate': 'Bearer realm="opentela"' } });
}
