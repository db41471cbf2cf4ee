/**
 * Decides which providers may receive a request, from the lists of the key, of its project and of the request, and from
 * the operator's settings.
 */

import { ApiError } from '../../shared/openai/api-errors.ts';
import type { NodeIndex } from '../../shared/routing/node-index.ts';
import {
  canonicalProvider,
  decideTrust,
  LOCAL_ISSUER,
  requireProviderList,
  type Trust,
  trustsNobody,
} from '../../shared/routing/trusted-providers.ts';
import type { HttpRequest } from '../http/http-request.ts';
import type { Account } from './account.ts';
import { type GatewaySettings, settingsIndex } from './gateway-settings.ts';

const TRUST_HEADER = 'x-otela-trusted-providers';
export const TRUST_METADATA = 'otela_trusted_providers';

/**
 * Lists of trusted providers that a request contains. Most requests have none; then the result of `trustOf` is cached.
 */
export type RequestedTrust = readonly (readonly string[])[];

const NONE: RequestedTrust = [];

/**
 * Returns the lists in a request's header and metadata. If both are given, both apply.
 * @throws ApiError 400 unknown_provider
 */
export function requestedTrust(request: HttpRequest, metadata: string | undefined): RequestedTrust {
  const header = request.headers.get(TRUST_HEADER);
  if (header === null && metadata === undefined) return NONE;
  const lists: string[][] = [];
  if (header !== null) lists.push(requireProviderList(header, TRUST_HEADER));
  if (metadata !== undefined) lists.push(requireProviderList(metadata, `metadata.${TRUST_METADATA}`));
  return lists;
}

interface CachedTrust {
  settings: GatewaySettings;
  trust: Trust;
}

/** Cached results for requests without lists. They are valid until the account or the settings change. */
const made = new WeakMap<Account, CachedTrust>();

export function trustOf(account: Account, requested: RequestedTrust, settings: GatewaySettings): Trust {
  if (requested.length > 0) return decide(account, requested, settings);
  const known = made.get(account);
  if (known?.settings === settings) return known.trust;
  const trust = decide(account, requested, settings);
  made.set(account, { settings, trust });
  return trust;
}

function decide({ restrictions }: Account, requested: RequestedTrust, settings: GatewaySettings): Trust {
  const { defaults, deleted } = settingsIndex(settings);
  return decideTrust({
    own: LOCAL_ISSUER,
    lists: [...requested, ...restrictions.map(({ trustedProviders }) => trustedProviders)],
    defaults,
    deleted,
    policies: restrictions.map(({ data }) => data),
  });
}

/** The members of a registry view that name providers: the settings, the nodes and the peer institutions. */
interface ProvidersView {
  readonly settings: GatewaySettings;
  readonly nodes: Pick<NodeIndex, 'entries'>;
  readonly issuers: ReadonlyMap<string, { name: string }>;
}

/** True if this gateway knows or knew every provider that a request names. */
export function knowsAllProviders(view: ProvidersView, requested: RequestedTrust): boolean {
  return requested.every((list) => list.every((id) => knows(view, id)));
}

function knows({ settings, nodes, issuers }: ProvidersView, named: string): boolean {
  const id = canonicalProvider(named, LOCAL_ISSUER);
  if (Object.hasOwn(settings.providers, id)) return true;
  // Only a peer institution knows its providers, so every name with its suffix counts as known.
  const peer = id.split('@')[1];
  if (peer !== undefined && [...issuers.values()].some(({ name }) => name === peer)) return true;
  for (const { provider, issuer } of nodes.entries()) {
    if (id === provider || id === `${provider}@${issuer}`) return true;
  }
  return false;
}

/**
 * Checks the request's lists before nodes are searched.
 * @throws ApiError 503 while the trusted providers are unknown; 400 unknown_provider; 403 no_trusted_provider
 */
export function requireTrust(view: ProvidersView, requested: RequestedTrust, trust: Trust): void {
  if (!view.settings.known) {
    throw new ApiError(
      'server_is_overloaded',
      'The gateway has not loaded the trusted providers yet. Try again shortly.',
    );
  }
  for (const id of requested.flat()) {
    if (knows(view, id)) continue;
    throw new ApiError('unknown_provider', `This gateway does not know a provider "${id}".`, { param: TRUST_HEADER });
  }
  if (!trustsNobody(trust)) return;
  const message = 'This key, its project and this request have no trusted provider in common.';
  throw new ApiError('no_trusted_provider', message);
}
