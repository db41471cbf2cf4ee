import type { RegistryEntry } from '../../shared/lattice/node.ts';
import type { View } from './snapshot.ts';

/** What anybody who may read the registry sees of a session: no addresses, no host names. */
function publicEntry(entry: RegistryEntry): RegistryEntry {
  const { job, ...rest } = entry;
  if (job === undefined) return rest;
  const { node: _, ...shown } = job;
  return { ...rest, job: shown };
}

const list = <T>(data: T[]): { object: 'list'; data: T[] } => ({ object: 'list', data });

/** `GET /v1/registry/nodes` */
export function registryNodes(view: View) {
  return list(view.entries.map(publicEntry));
}

/** `GET /v1/registry/models`: each model with the number of its replicas by state. */
export function registryModels(view: View) {
  return list(
    [...view.byModel].map(([id, entries]) => ({
      id,
      replicas: entries.filter(({ state }) => state !== 'LEFT').length,
      serving: entries.filter(({ state, suspected }) => state === 'SERVING' && !suspected).length,
      providers: [...new Set(entries.map(({ provider }) => provider))].sort(),
    })),
  );
}

/** `GET /v1/registry/providers` */
export function registryProviders(view: View) {
  const providers = new Map<string, { id: string; nodes: number; serving: number }>();
  for (const entry of view.entries) {
    const provider = providers.get(entry.provider) ?? { id: entry.provider, nodes: 0, serving: 0 };
    if (entry.state !== 'LEFT') provider.nodes++;
    if (entry.state === 'SERVING' && !entry.suspected) provider.serving++;
    providers.set(entry.provider, provider);
  }
  return list([...providers.values()]);
}
