import type { RegistryEntry, ServedModel } from '../lattice/node.ts';
import type { ModelNodes } from './nodes.ts';

/**
 * Sessions that serve `model` in another revision or quantisation than `first`: their words would not follow those of the first.
 * What neither of two nodes tells is taken for the same.
 */
export function* unlike(
  nodes: ModelNodes | undefined,
  model: string,
  first: ServedModel | undefined,
): Iterable<string> {
  if (nodes === undefined) return;
  for (const list of [nodes.ready, nodes.suspected]) {
    for (const entry of list) if (!isAlike(entry, model, first)) yield entry.session;
  }
}

/** Whether some node is known, gone ones included, that serves or served `model` as `first` does, of those that `may` allows. */
export function hasAlike(
  nodes: ModelNodes | undefined,
  model: string,
  first: ServedModel | undefined,
  may: (entry: RegistryEntry) => boolean,
): boolean {
  return nodes?.all.some((entry) => isAlike(entry, model, first) && may(entry)) ?? false;
}

function isAlike({ models }: RegistryEntry, model: string, first: ServedModel | undefined): boolean {
  const served = models.find(({ id }) => id === model);
  return served?.revision === first?.revision && served?.quantization === first?.quantization;
}

/** What every node that goes on must have besides, as a part of a scope's name. */
export function needsOf(first: ServedModel | undefined): string {
  const { revision, quantization } = first ?? {};
  return revision === undefined && quantization === undefined ? '' : ` ${JSON.stringify([revision, quantization])}`;
}
