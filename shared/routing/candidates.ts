import type { RegistryEntry } from '../lattice/node.ts';

/** A session that a request could go to. */
export interface Candidate {
  session: string;
  provider: string;
  cluster: string;
}

/**
 * The sessions that serve `model` now and were not tried yet. Trust and requirements will filter here too, before any policy
 * sees a candidate.
 */
export function candidatesFor(
  sessions: readonly RegistryEntry[],
  model: string,
  tried: ReadonlySet<string>,
): Candidate[] {
  const candidates: Candidate[] = [];
  for (const entry of sessions) {
    if (entry.state !== 'SERVING' || entry.suspected || tried.has(entry.session)) continue;
    if (entry.models.some(({ id, state }) => id === model && state === 'ready')) candidates.push(entry);
  }
  return candidates;
}

/** Sessions that would serve `model` but for a lost path: worth a wait when nobody else is there. */
export function suspectedFor(
  sessions: readonly RegistryEntry[],
  model: string,
  tried: ReadonlySet<string>,
): Candidate[] {
  const candidates: Candidate[] = [];
  for (const entry of sessions) {
    if (entry.state !== 'SERVING' || !entry.suspected || tried.has(entry.session)) continue;
    if (entry.models.some(({ id, state }) => id === model && state === 'ready')) candidates.push(entry);
  }
  return candidates;
}
