/**
 * The part of a model's catalog entry that affects requests: access, whether a node should always serve it, and its
 * end. Pure.
 */
import { ApiError } from '../../shared/openai/api-errors.ts';
import { encodeHeaderValue } from '../../shared/openai/forwarded-headers.ts';
import { quoteForMessage } from '../../shared/openai/quote-for-message.ts';
import type { Account } from './account.ts';

/** The form in snapshots, without unset fields. Times are milliseconds since the epoch. */
export interface CatalogueEntry {
  /** Ids of keys, users and projects, and groups; absent: everyone. */
  access?: readonly string[];
  always_on?: true;
  deprecated_at?: number;
  sunset_at?: number;
  successor?: string;
}

export type ModelCatalogue = Readonly<Record<string, CatalogueEntry>>;

interface Has {
  readonly catalogue: ModelCatalogue;
}

/** The caller that asks for models; undefined: a caller without a key. */
type Viewer = Pick<Account, 'role' | 'keyId' | 'userId' | 'projectId' | 'groups'> | undefined;

/** Prefix of a group's name in access lists. No id of a key, a user or a project begins with it. */
const GROUP_PREFIX = 'group:';

const NO_CARD: CatalogueEntry = {};

/** The model's name comes from a client, so it may be `__proto__`. */
export function catalogueEntryOf({ catalogue }: Has, model: string): CatalogueEntry {
  return Object.hasOwn(catalogue, model) ? (catalogue[model] ?? NO_CARD) : NO_CARD;
}

/** True if this account may see and use the model. Operators always may, because they could change the list. */
export function hasAccess(settings: Has, account: Viewer, model: string): boolean {
  const { access } = catalogueEntryOf(settings, model);
  if (access === undefined || account?.role === 'operator') return true;
  if (account === undefined) return false;
  const { keyId, userId, projectId, groups } = account;
  return [keyId, userId, projectId, ...groups.map((name) => `${GROUP_PREFIX}${name}`)].some(
    (id) => id !== undefined && access.includes(id),
  );
}

export function isRetired(settings: Has, model: string, now: number): boolean {
  return (catalogueEntryOf(settings, model).sunset_at ?? Number.POSITIVE_INFINITY) <= now;
}

/** True if a node should serve the model now, regardless of its access list. */
export function isAlwaysOn(settings: Has, model: string, now: number): boolean {
  return catalogueEntryOf(settings, model).always_on === true && !isRetired(settings, model, now);
}

/**
 * @throws ApiError 404: a model that this account may not use looks like a model that does not exist; for a retired
 * model the error names the successor
 */
export function requireListed(settings: Has, account: Viewer, model: string, now: number): void {
  if (!hasAccess(settings, account, model)) throw unknownModelError(model);
  if (!isRetired(settings, model, now)) return;
  const { sunset_at: at = 0, successor } = catalogueEntryOf(settings, model);
  const instead = successor === undefined ? '' : ` Use '${quoteForMessage(successor)}' instead.`;
  const message = `The model '${quoteForMessage(model)}' was retired on ${new Date(at).toISOString().slice(0, 10)}.${instead}`;
  throw new ApiError('model_not_found', message, { param: 'model', headers: lifecycleHeaders(settings, model) });
}

export function unknownModelError(model: string): ApiError {
  return new ApiError('model_not_found', `The model '${quoteForMessage(model)}' does not exist here.`, {
    param: 'model',
  });
}

/** `deprecation` (RFC 9745), `sunset` (RFC 8594) and the successor's link (RFC 5829), as far as they are set. */
export function lifecycleHeaders(settings: Has, model: string): Record<string, string> {
  const { deprecated_at, sunset_at, successor } = catalogueEntryOf(settings, model);
  return {
    ...(deprecated_at !== undefined && { deprecation: `@${Math.floor(deprecated_at / 1_000)}` }),
    ...(sunset_at !== undefined && { sunset: new Date(sunset_at).toUTCString() }),
    ...(successor !== undefined && {
      link: `</v1/models/${encodeHeaderValue(successor.split('/').map(encodeURIComponent).join('/'))}>; rel="successor-version"`,
    }),
  };
}

/** The same dates in `/v1/models`, for clients that do not read headers. */
export function modelLifecycle(settings: Has, model: string) {
  const { always_on, deprecated_at, sunset_at, successor } = catalogueEntryOf(settings, model);
  const time = (ms: number) => new Date(ms).toISOString();
  return {
    ...(always_on === true && { always_on }),
    ...(deprecated_at !== undefined && { deprecated_at: time(deprecated_at) }),
    ...(sunset_at !== undefined && { sunset_at: time(sunset_at) }),
    ...(successor !== undefined && { successor }),
  };
}
