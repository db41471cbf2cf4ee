import type { ServedModel } from '../../shared/lattice/node-record.ts';
import { findModelStart, modelStartingError } from '../../shared/proxy/loading-model.ts';
import { dormantModel } from '../../shared/routing/dormant-models.ts';
import { isLoading, modelStart, remainingMs } from '../../shared/routing/loading-models.ts';
import { type ModelDetails, modelDetails } from '../../shared/routing/replica-kinds.ts';
import { isTrusted } from '../../shared/routing/trusted-providers.ts';
import { type Account, mayUseModel } from '../accounts/account.ts';
import { hasAccess, isRetired, modelLifecycle, requireListed, unknownModelError } from '../accounts/model-access.ts';
import { trustOf } from '../accounts/trusted-providers.ts';
import { coldModelFor } from '../factory/cold-models.ts';
import type { StartableModel } from '../factory/startable-models.ts';
import type { RegistrySnapshot } from '../registry/isolate-snapshot.ts';
import { aliasesOf } from '../routing/aliases-and-fallbacks.ts';

interface Model extends Partial<ModelDetails> {
  id: string;
  object: 'model';
  created: number;
  owned_by: string;
  /**
   * RFC 3339. From `deprecated_at` on, new work should use another model; from `sunset_at` on, requests are refused.
   */
  deprecated_at?: string;
  sunset_at?: string;
  successor?: string;
  always_on?: true;
  /** For a LoRA adapter: the model that it changes, as vLLM and SGLang list it. */
  parent?: string;
  state?: 'ready';
}

interface LoadingModel extends Omit<Model, 'state'> {
  state: 'loading';
  loading_ms: number;
  /** Milliseconds until the model is ready, estimated from earlier starts; null: unknown. */
  ready_in_ms: number | null;
}

/** A model that an autoscaler starts, or a node loads, when a request needs it. */
interface ColdModel extends Omit<Model, 'state'> {
  state: 'cold' | 'queued' | 'starting' | 'loading' | 'resting' | 'asleep' | 'on-disk';
  /**
   * Estimated milliseconds until the model is ready: from now if it is already starting, otherwise from the request
   * that starts it. Null: unknown.
   */
  ready_in_ms: number | null;
  /** Share of the weights that is loaded, 0 to 100; null: unknown. */
  loaded_percent: number | null;
  /** True if a request with this key starts the model. */
  may_start: boolean;
}

/**
 * True if this account may see the model: the account's lists and the model's access list allow it, and it is not
 * retired.
 */
function isListed({ settings }: RegistrySnapshot, account: Account, id: string): boolean {
  return mayUseModel(account, id) && hasAccess(settings, account, id) && !isRetired(settings, id, Date.now());
}

/**
 * Returns the models that nodes serve now, by name, if this account may use the model and trusts such a node. The
 * account's aliases are listed too.
 */
function servedModels(view: RegistrySnapshot, account: Account): Model[] {
  const trust = trustOf(account, [], view.settings);
  const served = new Map<string, { model: Model; replicas: ServedModel[] }>();
  for (const entry of view.nodes.entries()) {
    if (entry.state !== 'SERVING' || entry.suspected || !isTrusted(trust, entry)) continue;
    for (const replica of entry.models) {
      const { id, state, parent } = replica;
      if (state !== 'ready') continue;
      const known = served.get(id);
      if (known !== undefined) {
        known.replicas.push(replica);
        continue;
      }
      const created = Math.floor(Date.parse(entry.joined_at) / 1000);
      const adapter = parent === undefined ? {} : { parent };
      const model: Model = { id, object: 'model', created, owned_by: entry.provider, ...adapter };
      served.set(id, { model, replicas: [replica] });
    }
  }
  const models = new Map<string, Model>();
  for (const [id, { model, replicas }] of served)
    if (isListed(view, account, id)) models.set(id, { ...model, ...modelDetails(id, replicas) });
  for (const [id, name] of aliasesOf(account, view.settings)) {
    const meant = served.get(name);
    if (meant !== undefined && isListed(view, account, name))
      models.set(id, { ...meant.model, id, ...modelDetails(id, meant.replicas) });
  }
  for (const [id, model] of models) models.set(id, { ...model, ...modelLifecycle(view.settings, id) });
  return [...models.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
}

/** Returns the models that a node is loading and that no node serves yet, sorted by name. */
function loadingModels(view: RegistrySnapshot, account: Account, now: number): LoadingModel[] {
  const trust = trustOf(account, [], view.settings);
  const found: LoadingModel[] = [];
  for (const [id, nodes] of view.nodes.models()) {
    const start = isListed(view, account, id) ? modelStart(nodes, trust, now) : undefined;
    const first = start && nodes.all.find((entry) => isLoading(entry, id) && isTrusted(trust, entry));
    if (start === undefined || first === undefined) continue;
    const created = Math.floor(Date.parse(first.joined_at) / 1000);
    const estimate = { loading_ms: start.runningMs, ready_in_ms: remainingMs(start) ?? null };
    found.push({ id, object: 'model', created, owned_by: first.provider, state: 'loading', ...estimate });
  }
  return found;
}

function coldModels(view: RegistrySnapshot, account: Account, known: readonly StartableModel[]): ColdModel[] {
  const trust = trustOf(account, [], view.settings);
  const ids = new Set(known.map(({ id }) => id).filter((id) => isListed(view, account, id)));
  return [...ids].flatMap((id) => {
    const cold = coldModelFor(id, known, trust, account);
    const owner = known.find((one) => one.id === id)?.provider ?? '';
    if (cold === undefined) return [];
    const { state, readyInMs, percent, mayStart } = cold;
    const estimate = { ready_in_ms: readyInMs ?? null, loaded_percent: percent ?? null, may_start: mayStart };
    return [{ id, object: 'model' as const, created: 0, owned_by: owner, state, ...estimate }];
  });
}

/** Returns the models that no node serves and that an order to a node loads, sorted by name. */
function dormantModels(view: RegistrySnapshot, account: Account, now: number): ColdModel[] {
  const trust = trustOf(account, [], view.settings);
  return [...view.nodes.models()].flatMap(([id, nodes]) => {
    const dormant = isListed(view, account, id) ? dormantModel(nodes, trust, [], now) : undefined;
    if (dormant === undefined) return [];
    const { state, provider, readyInMs, parent } = dormant;
    const estimate = { ready_in_ms: readyInMs ?? null, loaded_percent: null, may_start: true };
    const adapter = parent === undefined ? {} : { parent };
    return [{ id, object: 'model' as const, created: 0, owned_by: provider, ...adapter, state, ...estimate }];
  });
}

/**
 * `GET /v1/models`. `startable`: models that an autoscaler starts on request. They, models that are loading, and models
 * that a node loads on request are only listed with `?state=all`.
 */
export function listModels(
  view: RegistrySnapshot,
  account: Account,
  startable: readonly StartableModel[] | undefined,
): { object: 'list'; data: (Model | LoadingModel | ColdModel)[] } {
  const served = servedModels(view, account);
  if (startable === undefined) return { object: 'list', data: served };
  const ready = served.map((model) => ({ ...model, state: 'ready' as const }));
  const here = new Set(ready.map(({ id }) => id));
  const dormant = dormantModels(view, account, Date.now()).filter(({ id }) => !here.has(id));
  for (const { id } of dormant) here.add(id);
  const cold = coldModels(view, account, startable).filter(({ id }) => !here.has(id));
  for (const { id } of cold) here.add(id);
  const loading = loadingModels(view, account, Date.now()).filter(({ id }) => !here.has(id));
  const data = [...ready, ...dormant, ...cold, ...loading];
  return { object: 'list', data: data.sort((a, b) => (a.id < b.id ? -1 : 1)) };
}

/** `GET /v1/models/{id}`; ids may contain slashes. @throws ApiError model_not_found, model_starting */
export function retrieveModel(
  view: RegistrySnapshot,
  account: Account,
  id: string,
  startable: readonly StartableModel[],
): Model | ColdModel {
  const model = servedModels(view, account).find((served) => served.id === id);
  if (model === undefined) {
    const waiting = [...dormantModels(view, account, Date.now()), ...coldModels(view, account, startable)];
    const cold = waiting.find((one) => one.id === id);
    if (cold !== undefined) return cold;
    const start =
      isListed(view, account, id) && findModelStart(view.nodes, [id], trustOf(account, [], view.settings), Date.now());
    if (start) throw modelStartingError(start);
    requireListed(view.settings, account, id, Date.now());
    throw unknownModelError(id);
  }
  return model;
}
