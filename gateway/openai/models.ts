import { ApiError } from '../../shared/openai/errors.ts';
import { quoted } from '../../shared/openai/quoted.ts';
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

/** `GET /v1/models`. */
export function listModels(view: View, account: Account): { object: 'list'; data: Model[] } {
  return { object: 'list', data: servedModels(view, account) };
}

/** `GET /v1/models/{id}`; ids may hold slashes. @throws ApiError model_not_found */
export function retrieveModel(view: View, account: Account, id: string): Model {
  const model = servedModels(view, account).find((served) => served.id === id);
  if (model === undefined) {
    throw new ApiError('model_not_found', `The model '${quoted(id)}' does not exist here.`, { param: 'model' });
  }
  return model;
}
