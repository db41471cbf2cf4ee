/** The answers of gateways and agents under `/v1/registry`. */
import { type RegistryEntry, SESSION_STATES, type ServedModel } from '../lattice/node-record.ts';
import type { ModelNodes, NodeIndex } from './node-index.ts';
import { differingFacts, type ReplicaKind, replicaKinds } from './replica-kinds.ts';
import { buildRequirement, type Requirement, RequirementError, satisfies } from './requirements.ts';

export const REGISTRY_VIEWS = ['nodes', 'models', 'providers'] as const;
export type RegistryViewName = (typeof REGISTRY_VIEWS)[number];

/** What the views read from the node index. */
export interface ViewedNodes extends Pick<NodeIndex, 'live' | 'get'> {
  entries(): IterableIterator<RegistryEntry>;
  models(): IterableIterator<[string, ModelNodes]>;
}

interface ListOf<T> {
  object: 'list';
  data: T[];
}

/**
 * The filters of a query. An entry matches a set if the entry has one of the set's values. An undefined filter matches
 * every entry.
 */
export interface RegistryFilter {
  model?: ReadonlySet<string>;
  provider?: ReadonlySet<string>;
  cluster?: ReadonlySet<string>;
  state?: ReadonlySet<string>;
  requirements: readonly Requirement[];
}

const NAMES = ['model', 'provider', 'cluster', 'state'] as const;
const VALUES_MAX = 64;

/**
 * Parses a query string such as `provider=eth,lab&gpu=GH200&vram>=80`. A URL parser reads `vram>=80` as a parameter
 * named `vram>`, so `>=` needs no encoding. Allowed names are those of RegistryFilter and of requirements. @throws
 * RequirementError
 */
export function parseFilter(query: Iterable<[string, string]>): RegistryFilter {
  const named: Partial<Record<(typeof NAMES)[number], ReadonlySet<string>>> = {};
  const requirements: Requirement[] = [];
  let count = 0;
  for (const [key, value] of query) {
    if (++count > VALUES_MAX) throw new RequirementError(`at most ${VALUES_MAX} filters are allowed`);
    const name = NAMES.find((known) => known === key);
    if (name === undefined) {
      const least = key.endsWith('>');
      requirements.push(buildRequirement(least ? key.slice(0, -1) : key, least ? '>=' : '=', value));
      continue;
    }
    // A model's name may contain a comma; the values of other filters cannot.
    const values = name === 'model' ? [value] : value.split(',').map((one) => one.trim());
    const wanted = name === 'state' ? values.map(stateNamed) : values;
    named[name] = new Set([...(named[name] ?? []), ...wanted]);
  }
  return { ...named, requirements };
}

function stateNamed(text: string): string {
  const state = SESSION_STATES.find((known) => known === text.toUpperCase());
  if (state === undefined)
    throw new RequirementError(`state: "${text.slice(0, 32)}" is not one of ${SESSION_STATES.join(', ')}`);
  return state;
}

/** True if the answer depends on the current time and not only on the registry. */
export function dependsOnTime(filter: RegistryFilter): boolean {
  return filter.requirements.some(({ key }) => key === 'time_left');
}

/**
 * The public view of a session, without host name, address and weights. Names of weights may be private to a provider.
 */
export function publicEntry(entry: RegistryEntry): RegistryEntry {
  const { job, weights: _weights, ...rest } = entry;
  if (job === undefined) return rest;
  const { node: _, ...shown } = job;
  return { ...rest, job: shown };
}

export function matchesFilter(entry: RegistryEntry, filter: RegistryFilter, now: number): boolean {
  const { model, provider, cluster, state, requirements } = filter;
  if (provider !== undefined && !provider.has(entry.provider)) return false;
  if (cluster !== undefined && !cluster.has(entry.cluster)) return false;
  if (state !== undefined && !state.has(entry.state)) return false;
  if (model === undefined) return requirements.length === 0 || satisfies(entry, requirements, undefined, now);
  return entry.models.some(({ id }) => model.has(id) && satisfies(entry, requirements, id, now));
}

/** `GET /v1/registry/nodes` */
export function nodesView(index: ViewedNodes, filter: RegistryFilter, now: number): ListOf<RegistryEntry> {
  return list([...selected(index, filter, now)].map(publicEntry));
}

interface ModelSummary {
  id: string;
  /** Number of sessions that are not LEFT. */
  replicas: number;
  /** Number of these sessions that can take a request now. */
  serving: number;
  providers: string[];
  /** The precisions and contexts in which the serving sessions have the model. */
  kinds: ReplicaKind[];
  /** The facts in which they differ. Absent: none. */
  differ?: ('precision' | 'context_length')[];
}

/** `GET /v1/registry/models`: each model with its replicas among the nodes that match. */
export function modelsView(index: ViewedNodes, filter: RegistryFilter, now: number): ListOf<ModelSummary> {
  const models = new Map<string, { replicas: number; serving: ServedModel[]; providers: Set<string> }>();
  for (const entry of selected(index, filter, now)) {
    for (const served of entry.models) {
      const { id, state } = served;
      if (filter.model !== undefined && !filter.model.has(id)) continue;
      const model = models.get(id) ?? { replicas: 0, serving: [], providers: new Set<string>() };
      models.set(id, model);
      if (entry.state !== 'LEFT') model.replicas++;
      if (isServing(entry) && state === 'ready') model.serving.push(served);
      model.providers.add(entry.provider);
    }
  }
  const shown = [...models].map(([id, { replicas, serving, providers }]) => {
    const kinds = replicaKinds(serving);
    const differ = differingFacts(kinds);
    return {
      id,
      replicas,
      serving: serving.length,
      providers: [...providers].sort(),
      kinds,
      ...(differ.length > 0 ? { differ } : {}),
    };
  });
  return list(shown.sort((a, b) => (a.id < b.id ? -1 : 1)));
}

interface ProviderSummary {
  id: string;
  nodes: number;
  serving: number;
}

/** `GET /v1/registry/providers` */
export function providersView(index: ViewedNodes, filter: RegistryFilter, now: number): ListOf<ProviderSummary> {
  const providers = new Map<string, ProviderSummary>();
  for (const entry of selected(index, filter, now)) {
    const provider = providers.get(entry.provider) ?? { id: entry.provider, nodes: 0, serving: 0 };
    providers.set(entry.provider, provider);
    if (entry.state !== 'LEFT') provider.nodes++;
    if (isServing(entry)) provider.serving++;
  }
  return list([...providers.values()].sort((a, b) => (a.id < b.id ? -1 : 1)));
}

export function registryView(
  name: RegistryViewName,
  index: ViewedNodes,
  filter: RegistryFilter,
  now: number,
): ListOf<unknown> {
  switch (name) {
    case 'nodes':
      return nodesView(index, filter, now);
    case 'models':
      return modelsView(index, filter, now);
    case 'providers':
      return providersView(index, filter, now);
  }
}

function* selected(index: ViewedNodes, filter: RegistryFilter, now: number): Generator<RegistryEntry> {
  for (const entry of index.entries()) if (matchesFilter(entry, filter, now)) yield entry;
}

function isServing({ state, suspected }: RegistryEntry): boolean {
  return state === 'SERVING' && !suspected;
}

function list<T>(data: T[]): ListOf<T> {
  return { object: 'list', data };
}
