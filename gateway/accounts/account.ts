/** An account: the identity and the rights of a caller. It comes from an API key, a login or the environment. */

import { ApiError } from '../../shared/openai/api-errors.ts';
import type { Endpoint } from '../../shared/openai/endpoints.ts';
import type { DataPolicy } from '../../shared/routing/trusted-providers.ts';
import type { HttpRequest } from '../http/http-request.ts';
import type { Limits } from '../settings/limits-schema.ts';
import type { OwnRouting } from '../settings/routing-settings.ts';
import { type AccountScope, ROLES, type Role } from './account-tables.ts';

/**
 * How long an isolate uses a cached account. A change of the account reaches the isolate within seconds, in the
 * registry's snapshot. The snapshot contains the change for longer than this time (CHANGES_RETENTION_MS), so every
 * isolate sees it.
 */
export const ACCOUNT_CACHED_MS = 10 * 60_000;

/** The restrictions of one row (key or project); undefined: not restricted. */
export interface Restrictions {
  models: readonly string[] | undefined;
  endpoints: readonly string[] | undefined;
  trustedProviders: readonly string[] | undefined;
  data: DataPolicy | undefined;
}

export interface Account {
  /** The key's id; `bootstrap` for the operator key in the environment; the user's id for a login. */
  keyId: string;
  /** For the key of a machine that logged in: id of the key that approved the login. Undefined for other accounts. */
  grantedBy: string | undefined;
  role: Role;
  /** For the role provider: the provider that this account acts for. */
  provider: string | undefined;
  userId: string | undefined;
  projectId: string | undefined;
  /** The user's groups, as access lists name them. */
  groups: readonly string[];
  scopes: readonly AccountScope[] | undefined;
  /** Restrictions of the key, of the key that approved it, and of the project. A request must satisfy all of them. */
  restrictions: readonly Restrictions[];
  /** Undefined: neither the key nor its user nor its project has limits, so requests do not call the limits object. */
  limits: AccountLimits | undefined;
  /** True if the header `x-otela-no-track` is obeyed: the request is then counted but not recorded. */
  mayOptOut: boolean;
  /** True if broken streams are resumed on another node, unless the request's header says otherwise. */
  resumes: boolean;
  /**
   * Milliseconds for which requests wait for a model that is being started, unless the request's header says otherwise.
   */
  startWaitMs: number | undefined;
  /** Routing settings of the key and of its project, in this order. */
  routing: readonly OwnRouting[];
  /** True if the account's requests are in the trace export. */
  traced: boolean;
  /** True if the trace export also shows, as ids, which prompts have the same beginning. */
  prefixes: boolean;
  /** The payer's identity, encrypted for receipts; see payer-receipt.ts. */
  seal: string;
  /** End of the account; milliseconds since the epoch. */
  expiresAt: number | undefined;
  /**
   * Id of the newest change in the audit log when this account was read. isAccountStale compares it with later changes.
   */
  seen: number;
}

export interface AccountLimits {
  /** Name of the limits object that counts this account: the project's, otherwise the user's, otherwise the key's. */
  subject: string;
  key: Limits | undefined;
  project: Limits | undefined;
  /** Limits that the user's keys share, separately in each project. Set together with `userId`. */
  user?: Limits | undefined;
  userId?: string | undefined;
}

export function isRoleAtLeast(role: Role, wanted: Role): boolean {
  return ROLES.indexOf(role) >= ROLES.indexOf(wanted);
}

/** Returns the lower of two roles: a key never has more rights than its user. */
export function lowerRole(a: Role, b: Role): Role {
  return isRoleAtLeast(a, b) ? b : a;
}

/** @throws ApiError 403 permission_denied */
export function requireScope({ scopes }: Pick<Account, 'scopes'>, ...anyOf: AccountScope[]): void {
  if (scopes === undefined || anyOf.some((scope) => scopes.includes(scope))) return;
  throw new ApiError('permission_denied', `This key lacks the scope "${anyOf.at(-1)}".`);
}

/**
 * Returns the name of an endpoint in allow-lists: its path without `/v1/`, and without the part that names a stored
 * response.
 */
export function endpointPathName({ path }: Pick<Endpoint, 'path'>): string {
  return path.slice('/v1/'.length).replace(/\/\{id\}.*/, '');
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
 * Refuses a model that the account may not use. Call it before a response reveals whether the model exists. `unseen`:
 * the gateway does not read the body and knows the model only from a header. The body could name another model, so keys
 * with a list of models are refused.
 * @throws ApiError 403 model_not_allowed
 */
export function requireModelAccess(account: Pick<Account, 'restrictions'>, model: string, unseen: boolean): void {
  if (unseen && account.restrictions.some(({ models }) => models !== undefined)) {
    const message = 'This key has a list of allowed models, so the gateway must read the body: omit x-otela-model.';
    throw new ApiError('model_not_allowed', message, { param: 'x-otela-model' });
  }
  if (mayUseModel(account, model)) return;
  throw new ApiError('model_not_allowed', `This key may not use the model '${model}'.`, { param: 'model' });
}

/** True if a list of model names contains `model`. A name that ends in `*` matches all models with that prefix. */
export function matchesModelPattern(patterns: readonly string[], model: string): boolean {
  return patterns.some((one) => matches(one, model));
}

function matches(pattern: string, model: string): boolean {
  return pattern.endsWith('*') ? model.startsWith(pattern.slice(0, -1)) : pattern === model;
}

const NO_TRACK_HEADER = 'x-otela-no-track';

/**
 * True if the request must be counted but not recorded.
 * @throws ApiError 403 if the key may not ask for this; 400 for a value other than 0 or 1, because a request for
 * privacy must not be ignored
 */
export function isRecordingDeclined({ mayOptOut }: Pick<Account, 'mayOptOut'>, request: HttpRequest): boolean {
  const wish = request.headers.get(NO_TRACK_HEADER);
  if (wish === null || wish === '0') return false;
  if (wish !== '1')
    throw new ApiError('invalid_request', `${NO_TRACK_HEADER} must be 1, or omitted.`, { param: NO_TRACK_HEADER });
  if (mayOptOut) return true;
  throw new ApiError('permission_denied', 'This key may not turn off usage records: omit x-otela-no-track.');
}

const NO_TRACE_HEADER = 'x-otela-no-trace';

/**
 * True if the request must not be in the workload trace. Every key may ask for this, because its usage is recorded and
 * counted all the same.
 * @throws ApiError 400 for a value other than 0 or 1, because a request for privacy must not be ignored
 */
export function isTraceDeclined(request: HttpRequest): boolean {
  const wish = request.headers.get(NO_TRACE_HEADER);
  if (wish === null || wish === '0') return false;
  if (wish === '1') return true;
  throw new ApiError('invalid_request', `${NO_TRACE_HEADER} must be 1, or omitted.`, { param: NO_TRACE_HEADER });
}

/** The account of the operator key in the environment. It has all rights, and D1 is not read for it. */
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
