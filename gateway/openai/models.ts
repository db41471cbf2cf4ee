import { ApiError } from '../../shared/openai/errors.ts';
import { quoted } from '../../shared/openai/quoted.ts';
import { modelStarting, startOf } from '../../shared/proxy/model-starting.ts';
import { loads, modelStart, remainingMs } from '../../shared/routing/model-start.ts';
import { isTrusted } from '../../shared/routing/trust.ts';
import { type Account, mayUseModel } from '../accounts/account.ts';
import { trustOf } from '../accounts/trust.ts';
import type { View } from '../registry/snapshot.ts';
import { aliasesOf } from '../routing/alias.ts';

interface Model {
  id: string;
  object: 'model';
  created: number;
  owned_by: string;
  state?: 'ready';
}

interface LoadingModel extends Omit<Model, 'state'> {
  state: 'loading';
  loading_ms: number;
  /** By the starts before; null: not known. */
  ready_in_ms: number | null;
}

/** Models that this account may use and that some node it trusts serves now, by name; also by the other names that it has for them. */
function servedModels(view: View, account: Account): Model[] {
  const trust = trustOf(account, [], view.settings);
  const served = new Map<string, Model>();
  for (const entry of view.nodes.entries()) {
    if (entry.state !== 'SERVING' || entry.suspected || !isTrusted(trust, entry)) continue;
    for (const { id, state } of entry.models) {
      if (state !== 'ready' || served.has(id)) continue;
      const created = Math.floor(Date.parse(entry.joined_at) / 1000);
      served.set(id, { id, object: 'model', created, owned_by: entry.provider });
    }
  }
  const models = new Map([...served].filter(([id]) => mayUseModel(account, id)));
  for (const [id, model] of aliasesOf(account, view.settings)) {
    const meant = served.get(model);
    if (meant !== undefined) models.set(id, { ...meant, id });
  }
  return [...models.values()].sort((a, b) => (a.id < b.id ? -1 : 1));
}

/** Models that nobody serves yet and somebody loads, by name. */
function loadingModels(view: View, account: Account, now: number): LoadingModel[] {
  const trust = trustOf(account, [], view.settings);
  const found: LoadingModel[] = [];
  for (const [id, nodes] of view.nodes.models()) {
    const start = mayUseModel(account, id) ? modelStart(nodes, trust, now) : undefined;
    const first = start && nodes.all.find((entry) => loads(entry, id) && isTrusted(trust, entry));
    if (start === undefined || first === undefined) continue;
    const created = Math.floor(Date.parse(first.joined_at) / 1000);
    const estimate = { loading_ms: start.runningMs, ready_in_ms: remainingMs(start) ?? null };
    found.push({ id, object: 'model', created, owned_by: first.provider, state: 'loading', ...estimate });
  }
  return found;
}

/** `GET /v1/models`; with `?state=all` also those that are being loaded. */
export function listModels(
  view: View,
  account: Account,
  all: boolean,
): { object: 'list'; data: (Model | LoadingModel)[] } {
  const served = servedModels(view, account);
  if (!all) return { object: 'list', data: served };
  const ready = served.map((model) => ({ ...model, state: 'ready' as const }));
  const data = [...ready, ...loadingModels(view, account, Date.now())];
  return { object: 'list', data: data.sort((a, b) => (a.id < b.id ? -1 : 1)) };
}

/** `GET /v1/models/{id}`; ids may hold slashes. @throws ApiError model_not_found, model_starting */
export function retrieveModel(view: View, account: Account, id: string): Model {
  const model = servedModels(view, account).find((served) => served.id === id);
  if (model === undefined) {
    const start =
      mayUseModel(account, id) && startOf(view.nodes, [id], trustOf(account, [], view.settings), Date.now());
    if (start) throw modelStarting(start);
    throw new ApiError('model_not_found', `The model '${quoted(id)}' does not exist here.`, { param: 'model' });
  }
  return model;
}
