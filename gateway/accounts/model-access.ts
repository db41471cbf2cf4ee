/**
 * The part of a model's catalog entry that affects requests: which accounts may use the model, whether it should always
 * be served, and when it is retired. Pure.
 */
import { ApiError } from '../../shared/openai/api-errors.ts';
import { encodeHeaderValue } from '../../shared/openai/forwarded-headers.ts';
import { quoteForMessage } from '../../shared/openai/quote-for-message.ts';
import type { Account } from './account.ts';

/** A catalog entry as snapshots contain it, without unset fields. Times are milliseconds since the epoch. */
export interface CatalogueEntry {
  /** Ids of keys, users and projects, and names of groups, that may use the model; absent: everyone. */
  access?: readonly string[];
  always_on?: true;
  deprecated_at?: number;
  sunset_at?: number;
  successor?: string;
}

export type ModelCatalogue = Readonly<Record<string, CatalogueEntry>>;

interface SettingsWithCatalogue {
  readonly catalogue: ModelCatalogue;
}

/** The account that reads the list of models; undefined: the request has no key. */
type Viewer = Pick<Account, 'role' | 'keyId' | 'userId' | 'projectId' | 'groups'> | undefined;

/** Prefix of a group's name in access lists. No id of a key, user or project begins with it. */
const GROUP_PREFIX = 'group:';

const NO_CARD: CatalogueEntry = {};

/** Returns a model's catalog entry. The name comes from a client, so it may be `__proto__`. */
export function catalogueEntryOf({ catalogue }: SettingsWithCatalogue, model: string): CatalogueEntry {
  return Object.hasOwn(catalogue, model) ? (catalogue[model] ?? NO_CARD) : NO_CARD;
}

/** True if this account may see and use the model. Operators always may, because they can change the list. */
export function hasAccess(settings: SettingsWithCatalogue, account: Viewer, model: string): boolean {
  const { access } = catalogueEntryOf(settings, model);
  if (access === undefined || account?.role === 'operator') return true;
  if (account === undefined) return false;
  const { keyId, userId, projectId, groups } = account;
  return [keyId, userId, projectId, ...groups.map((name) => `${GROUP_PREFIX}${name}`)].some(
    (id) => id !== undefined && access.includes(id),
  );
}

export function isRetired(settings: SettingsWithCatalogue, model: string, now: number): boolean {
  return (catalogueEntryOf(settings, model).sunset_at ?? Number.POSITIVE_INFINITY) <= now;
}

/** True if a node should always serve the model and the model is not retired. Does not depend on its access list. */
export function isAlwaysOn(settings: SettingsWithCatalogue, model: string, now: number): boolean {
  return catalogueEntryOf(settings, model).always_on === true && !isRetired(settings, model, now);
}

/**
 * @throws ApiError 404 if the account may not use the model (the error is the same as for a model that does not exist),
 * or if the model is retired (the error then names the successor)
 */
export function requireListed(settings: SettingsWithCatalogue, account: Viewer, model: string, now: number): void {
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

/**
 * Returns the headers `deprecation` (RFC 9745), `sunset` (RFC 8594) and a link to the successor (RFC 5829), if they are
 * set.
 */
export function lifecycleHeaders(settings: SettingsWithCatalogue, model: string): Record<string, string> {
  const { deprecated_at, sunset_at, successor } = catalogueEntryOf(settings, model);
  return {
    ...(deprecated_at !== undefined && { deprecation: `@${Math.floor(deprecated_at / 1_000)}` }),
    ...(sunset_at !== undefined && { sunset: new Date(sunset_at).toUTCString() }),
    ...(successor !== undefined && {
      link: `</v1/models/${encodeHeaderValue(successor.split('/').map(encodeURIComponent).join('/'))}>; rel="successor-version"`,
    }),
  };
}

/** Returns the dates of `lifecycleHeaders` as members of `/v1/models`, for clients that do not read headers. */
export function modelLifecycle(settings: SettingsWithCatalogue, model: string) {
  const { always_on, deprecated_at, sunset_at, successor } = catalogueEntryOf(settings, model);
  const time = (ms: number) => new Date(ms).toISOString();
  return {
    ...(always_on === true && { always_on }),
    ...(deprecated_at !== undefined && { deprecated_at: time(deprecated_at) }),
    ...(sunset_at !== undefined && { sunset_at: time(sunset_at) }),
    ...(successor !== undefined && { successor }),
  };
}
