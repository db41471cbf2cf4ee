/** Whose machines may see one request: the key's lists, the request's, and what the operator says of providers. */

import { ApiError } from '../../shared/openai/errors.ts';
import type { NodeIndex } from '../../shared/routing/nodes.ts';
import {
  canonicalProvider,
  decideTrust,
  LOCAL_ISSUER,
  readProviderList,
  type Trust,
  trustsNobody,
} from '../../shared/routing/trust.ts';
import type { HttpRequest } from '../http/http-request.ts';
import type { Account } from './account.ts';
import { type GatewaySettings, settingsIndex } from './settings.ts';

const TRUST_HEADER = 'x-otela-trusted-providers';
export const TRUST_METADATA = 'otela_trusted_providers';

/** Lists that a request brings. Empty for most: then nothing is made anew for it. */
export type RequestedTrust = readonly (readonly string[])[];

const NONE: RequestedTrust = [];

/** The lists of a request's header and metadata; given both, both hold. @throws ApiError 400 unknown_provider */
export function requestedTrust(request: HttpRequest, metadata: string | undefined): RequestedTrust {
  const header = request.headers.get(TRUST_HEADER);
  if (header === null && metadata === undefined) return NONE;
  const lists: string[][] = [];
  if (header !== null) lists.push(readList(header, TRUST_HEADER));
  if (metadata !== undefined) lists.push(readList(metadata, `metadata.${TRUST_METADATA}`));
  return lists;
}

function readList(text: string, param: string): string[] {
  const list = readProviderList(text);
  if (list !== undefined) return list;
  const message = `${param} must be a list of at most 64 provider ids, as in "eth, psi@peer".`;
  throw new ApiError('unknown_provider', message, { param });
}

interface Made {
  settings: GatewaySettings;
  trust: Trust;
}

/** For requests without lists of their own: the same until the account or the settings are new. */
const made = new WeakMap<Account, Made>();

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

/** What a view of the registry says of providers: those of the settings, of the nodes, and the peers that have their own. */
interface Known {
  readonly settings: GatewaySettings;
  readonly nodes: Pick<NodeIndex, 'entries'>;
  readonly issuers: ReadonlyMap<string, { name: string }>;
}

/** Whether every provider that a request names is one that this gateway knows or knew. */
export function knowsAllProviders(view: Known, requested: RequestedTrust): boolean {
  return requested.every((list) => list.every((id) => knows(view, id)));
}

function knows({ settings, nodes, issuers }: Known, named: string): boolean {
  const id = canonicalProvider(named, LOCAL_ISSUER);
  if (Object.hasOwn(settings.providers, id)) return true;
  // Whom a peer admits is the peer's to know.
  const peer = id.split('@')[1];
  if (peer !== undefined && [...issuers.values()].some(({ name }) => name === peer)) return true;
  for (const { provider, issuer } of nodes.entries()) {
    if (id === provider || id === `${provider}@${issuer}`) return true;
  }
  return false;
}

/**
 * What is wrong before any node is looked for.
 * @throws ApiError 503 while the trusted providers are not known, 400 unknown_provider, 403 no_trusted_provider
 */
export function requireTrust(view: Known, requested: RequestedTrust, trust: Trust): void {
  if (!view.settings.known) {
    throw new ApiError('server_is_overloaded', 'The gateway does not know yet whom to trust. Try again shortly.');
  }
  for (const id of requested.flat()) {
    if (knows(view, id)) continue;
    throw new ApiError('unknown_provider', `This gateway never knew a provider "${id}".`, { param: TRUST_HEADER });
  }
  if (!trustsNobody(trust)) return;
  const message = 'No provider is trusted by this key, its project and this request alike.';
  throw new ApiError('no_trusted_provider', message);
}
