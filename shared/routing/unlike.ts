import type { ServedModel } from '../lattice/node.ts';
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
    for (const { session, models } of list) {
      const served = models.find(({ id }) => id === model);
      const same = served?.revision === first?.revision && served?.quantization === first?.quantization;
      if (!same) yield session;
    }
  }
}

/** What every node that goes on must have besides, as a part of a scope's name. */
export function needsOf(first: ServedModel | undefined): string {
  const { revision, quantization } = first ?? {};
  return revision === undefined && quantization === undefined ? '' : ` ${JSON.stringify([revision, quantization])}`;
}
