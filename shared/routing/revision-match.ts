import type { RegistryEntry, ServedModel } from '../lattice/node-record.ts';
import type { ModelNodes } from './node-index.ts';
import { quantizationBits } from './requirement-facts.ts';

const UNQUANTIZED = 'bf16';

/**
 * Sessions that serve `model` in another revision or quantization than `first`, so their tokens would not continue the
 * answer of `first`. Two nodes count as equal if neither publishes its quantization, or if one publishes 16 bits and
 * the other publishes nothing.
 */
export function* incompatibleSessions(
  nodes: ModelNodes | undefined,
  model: string,
  first: ServedModel | undefined,
): Iterable<string> {
  if (nodes === undefined) return;
  for (const list of [nodes.ready, nodes.suspected]) {
    for (const entry of list) if (!isAlike(entry, model, first)) yield entry.session;
  }
}

/**
 * True if a node that `isAllowed` allows serves or served `model` in the revision and quantization of `first`. Sessions
 * that are LEFT count.
 */
export function hasCompatible(
  nodes: ModelNodes | undefined,
  model: string,
  first: ServedModel | undefined,
  isAllowed: (entry: RegistryEntry) => boolean,
): boolean {
  return nodes?.all.some((entry) => isAlike(entry, model, first) && isAllowed(entry)) ?? false;
}

function isAlike({ models }: RegistryEntry, model: string, first: ServedModel | undefined): boolean {
  const served = models.find(({ id }) => id === model);
  return served?.revision === first?.revision && isSamePrecision(served?.quantization, first?.quantization);
}

/** Agents of earlier versions publish no precision for weights that are not quantized. */
function isSamePrecision(a: string | undefined, b: string | undefined): boolean {
  if (a === undefined || b === undefined) return quantizationBits(a ?? b ?? UNQUANTIZED) === 16;
  return a === b;
}

/** A part of a scope's name: the revision and quantization that every node that continues the response must have. */
export function compatibilityScope(first: ServedModel | undefined): string {
  const { revision, quantization } = first ?? {};
  return revision === undefined && quantization === undefined ? '' : ` ${JSON.stringify([revision, quantization])}`;
}
