/**
 * Decides which machines may receive a request. The provider lists of the key, its project and the request are
 * intersected before any policy sees a candidate, on every attempt, so no policy can choose a node outside the
 * intersection.
 *
 * A provider's id is `name` if our own issuer admitted it and `name@peer` if a peer did, so a provider of a peer cannot
 * take the name of a provider of ours.
 */
import { ApiError } from '../openai/api-errors.ts';

const NAME = '[a-z0-9][a-z0-9-]{0,62}';
export const PROVIDER_ID_PATTERN = new RegExp(`^${NAME}(@${NAME})?$`);
/** Name of a peer institution. */
export const INSTITUTION_PATTERN = new RegExp(`^${NAME}$`);

/** Maximum number of ids in one list of a request or a key. No institution has as many partners. */
export const PROVIDER_LIST_MAX = 64;

/** The name of our own issuer at gateways and agents. No peer may have it. */
export const LOCAL_ISSUER = 'local';

/** The properties of a node that trust depends on. */
export interface TrustedNode {
  /** Either `name` or the complete id `name@peer`. */
  provider: string;
  /** Local name of the node's issuer. */
  issuer: string;
  region?: string | undefined;
  tier: string;
}

/** Where data may be processed, by any provider. A node that publishes no region satisfies no list of regions. */
export interface DataPolicy {
  regions?: readonly string[] | undefined;
  tiers?: readonly string[] | undefined;
}

export interface TrustInput {
  /** Local name of our own issuer. Ids of its providers contain no `@`. */
  own: string;
  /** The lists of the key, its project and the request. Undefined: no restriction. Empty: no provider is trusted. */
  lists: readonly (readonly string[] | undefined)[];
  /**
   * Trusted providers if neither the key nor the project nor the request has a list. `admitted`: all providers that our
   * own issuer admits.
   */
  defaults: 'admitted' | readonly string[];
  /** Ids of deleted providers. They match no list, although nodes of these providers may still run. */
  deleted: ReadonlySet<string>;
  policies: readonly (DataPolicy | undefined)[];
}

/** The resolved trust of one request, which `isTrusted` compares with each candidate. */
export interface Trust {
  readonly own: string;
  readonly providers: ReadonlySet<string> | 'admitted';
  readonly deleted: ReadonlySet<string>;
  readonly regions: ReadonlySet<string> | undefined;
  readonly tiers: ReadonlySet<string> | undefined;
}

export function decideTrust({ own, lists, defaults, deleted, policies }: TrustInput): Trust {
  const spoken = lists.filter((list) => list !== undefined);
  const trusted = intersection(spoken.map((list) => list.map((id) => canonicalProvider(id, own))));
  const fallback = defaults === 'admitted' ? defaults : new Set(defaults.map((id) => canonicalProvider(id, own)));
  const providers = trusted ?? fallback;
  return {
    own,
    providers: providers === 'admitted' ? providers : without(providers, deleted),
    deleted,
    regions: intersection(policies.flatMap((policy) => (policy?.regions === undefined ? [] : [policy.regions]))),
    tiers: intersection(policies.flatMap((policy) => (policy?.tiers === undefined ? [] : [policy.tiers]))),
  };
}

/**
 * True if the lists, regions and tiers leave no trusted provider. The client gets 403, because neither waiting nor
 * other nodes can help. If there are trusted providers but none of them has a node, the client gets 503 instead.
 */
export function trustsNobody({ providers, regions, tiers }: Trust): boolean {
  return (providers !== 'admitted' && providers.size === 0) || regions?.size === 0 || tiers?.size === 0;
}

/** True if the trust depends only on a node's issuer. */
export function trustsAllAdmitted({ providers, deleted, regions, tiers }: Trust): boolean {
  return providers === 'admitted' && deleted.size === 0 && regions === undefined && tiers === undefined;
}

/** True if `node` may see the request. */
export function isTrusted(trust: Trust, node: TrustedNode): boolean {
  const id = providerId(node, trust.own);
  const listed = trust.providers === 'admitted' ? node.issuer === trust.own : trust.providers.has(id);
  if (!listed || trust.deleted.has(id)) return false;
  if (trust.regions !== undefined && (node.region === undefined || !trust.regions.has(node.region))) return false;
  return trust.tiers === undefined || trust.tiers.has(node.tier);
}

/**
 * The provider id that lists use. A published name that already contains `@peer` is accepted only from the issuer
 * `peer`.
 */
export function providerId({ provider, issuer }: Pick<TrustedNode, 'provider' | 'issuer'>, own: string): string {
  if (issuer === own) return provider;
  return provider.endsWith(`@${issuer}`) ? provider : `${provider}@${issuer}`;
}

/**
 * Parses `a, b@eth` from `x-otela-trusted-providers` or `metadata.otela_trusted_providers`. An empty text is an empty
 * list, which trusts no provider. Undefined if it is not a list of ids, or too long.
 */
export function readProviderList(text: string): string[] | undefined {
  const ids = text
    .split(',')
    .map((id) => id.trim())
    .filter((id) => id !== '');
  if (ids.length > PROVIDER_LIST_MAX || !ids.every((id) => PROVIDER_ID_PATTERN.test(id))) return undefined;
  return [...new Set(ids)];
}

/** `param`: the header or field that holds the list. @throws ApiError 400 unknown_provider */
export function requireProviderList(text: string, param: string): string[] {
  const list = readProviderList(text);
  if (list !== undefined) return list;
  const message = `${param} must be a list of at most 64 provider ids, for example "eth, psi@peer".`;
  throw new ApiError('unknown_provider', message, { param });
}

/** Maps `eth@local` to `eth` if `local` is our own issuer. */
export function canonicalProvider(id: string, own: string): string {
  return id.endsWith(`@${own}`) ? id.slice(0, -own.length - 1) : id;
}

/** The ids that are in every list. Undefined (no restriction) if there are no lists. */
function intersection(lists: readonly (readonly string[])[]): ReadonlySet<string> | undefined {
  const [first, ...others] = lists;
  if (first === undefined) return undefined;
  return new Set(first.filter((id) => others.every((other) => other.includes(id))));
}

function without(ids: ReadonlySet<string>, deleted: ReadonlySet<string>): ReadonlySet<string> {
  if (![...ids].some((id) => deleted.has(id))) return ids;
  return new Set([...ids].filter((id) => !deleted.has(id)));
}

const scopes = new WeakMap<Trust, string>();

/** A key that identifies the set of nodes that a request may use. */
export function trustScope(trust: Trust): string {
  let scope = scopes.get(trust);
  if (scope === undefined) {
    const { own, providers, deleted, regions, tiers } = trust;
    const named = providers === 'admitted' ? providers : [...providers].sort();
    const sorted = (set: ReadonlySet<string> | undefined) => set && [...set].sort();
    scope = JSON.stringify([own, named, sorted(deleted), sorted(regions), sorted(tiers)]);
    scopes.set(trust, scope);
  }
  return scope;
}
