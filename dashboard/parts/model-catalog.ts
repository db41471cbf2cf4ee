/** Models as the registry's nodes serve them. */
import type { Node } from '../api/schemas.ts';
import type { StartableView } from './startable-models.ts';

export interface CatalogueModel {
  id: string;
  serving: number;
  loading: number;
  /** Nodes with a sleeping engine, which a request wakes. */
  asleep: number;
  /** Nodes that have the adapter and have not loaded it: a request loads it. */
  onDisk: number;
  /** For a LoRA adapter: the model that it changes. */
  parent: string | undefined;
  silent: number;
  nodes: Node[];
  /** Different contexts of its nodes, the least first. */
  contexts: number[];
  quantizations: string[];
  /** State of the model's start. Only for a model that no node serves and that a request starts. */
  start?: StartableView;
}

/** A model that no node has any more. */
interface GoneModel {
  id: string;
  /** RFC 3339; undefined: longer ago than the registry remembers. */
  since: string | undefined;
}

/** Known models, served ones first. Nodes that LEFT are ignored. */
export function catalogueOf(nodes: Iterable<Node>): CatalogueModel[] {
  const models = new Map<string, CatalogueModel>();
  for (const node of nodes) {
    if (node.state === 'LEFT') continue;
    for (const served of node.models) {
      const model = models.get(served.id) ?? emptyModel(served.id);
      models.set(served.id, model);
      model.nodes.push(node);
      if (node.suspected) model.silent++;
      else if (node.state === 'SERVING' && served.state === 'ready') model.serving++;
      else if (served.state === 'asleep') model.asleep++;
      else if (served.state === 'on-disk') model.onDisk++;
      else model.loading++;
      model.parent ??= served.parent;
      if (served.context_length !== undefined && !model.contexts.includes(served.context_length))
        model.contexts.push(served.context_length);
      const precision = served.quantization === undefined ? undefined : precisionName(served.quantization);
      if (precision !== undefined && !model.quantizations.includes(precision)) model.quantizations.push(precision);
    }
  }
  for (const { contexts } of models.values()) contexts.sort((a, b) => a - b);
  return [...models.values()].sort((a, b) => Number(b.serving > 0) - Number(a.serving > 0) || a.id.localeCompare(b.id));
}

/** Appends the models that a request starts. */
export function withStartable(
  models: readonly CatalogueModel[],
  startable: readonly StartableView[],
): CatalogueModel[] {
  const starts = new Map(startable.filter(({ mayStart }) => mayStart).map((one) => [one.id, one]));
  const known = models.map((model) => {
    const start = starts.get(model.id);
    starts.delete(model.id);
    return start === undefined || model.serving > 0 ? model : { ...model, start };
  });
  return [...known, ...[...starts.values()].map((start) => ({ ...emptyModel(start.id), start }))];
}

/** Models that no node has now, from two sources: nodes that left, and models that operators described. */
export function goneModels(nodes: Iterable<Node>, described: readonly string[]): GoneModel[] {
  const all = [...nodes];
  const here = new Set(catalogueOf(all).map(({ id }) => id));
  const gone = new Map<string, string | undefined>(described.map((id) => [id, undefined]));
  for (const node of all) {
    if (node.state !== 'LEFT') continue;
    for (const { id } of node.models) {
      const known = gone.get(id);
      if (known === undefined || known < node.updated_at) gone.set(id, node.updated_at);
    }
  }
  return [...gone]
    .filter(([id]) => !here.has(id))
    .map(([id, since]) => ({ id, since }))
    .sort((a, b) => a.id.localeCompare(b.id));
}

/** One name for a format that checkpoints and engines call differently. */
export function precisionName(quantization: string): string {
  return quantization
    .toLowerCase()
    .replace(/^bfloat/, 'bf')
    .replace(/^(float|f)(?=\d)/, 'fp');
}

function emptyModel(id: string): CatalogueModel {
  const counts = { serving: 0, loading: 0, asleep: 0, onDisk: 0, silent: 0 };
  return { id, ...counts, parent: undefined, nodes: [], contexts: [], quantizations: [] };
}
