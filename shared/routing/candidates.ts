import type { RegistryEntry } from '../lattice/node.ts';
import type { ModelNodes } from './nodes.ts';

/** A session that a request could go to. */
export interface Candidate {
  session: string;
  provider: string;
  cluster: string;
}

/**
 * The sessions that serve a model now and were not tried yet. A first attempt takes the index as it is: choosing among a
 * thousand costs no more than among three. Trust and requirements will filter here too, before any policy sees a candidate.
 */
export function candidatesFor(nodes: ModelNodes | undefined, tried: ReadonlySet<string>): readonly RegistryEntry[] {
  return untried(nodes?.ready ?? [], tried);
}

/** Sessions that would serve it but for a lost path: worth a wait when nobody else is there. */
export function suspectedFor(nodes: ModelNodes | undefined, tried: ReadonlySet<string>): readonly RegistryEntry[] {
  return untried(nodes?.suspected ?? [], tried);
}

function untried(entries: readonly RegistryEntry[], tried: ReadonlySet<string>): readonly RegistryEntry[] {
  return tried.size === 0 ? entries : entries.filter(({ session }) => !tried.has(session));
}
