import type { RegistryEntry } from '../lattice/node-record.ts';
import { modelFacts, nodeFacts } from './requirement-facts.ts';
import type { Requirement, RequirementKey } from './requirements.ts';

/** Maximum number of listed kinds of nodes, because an error message is not a list of all nodes. */
const OFFERS_MAX = 8;

/** A name that no kind has. */
const NOTHING = '';

/**
 * What nodes offer of the required facts, if no node meets the requirement: `with gpu=A100 context=32768 by 3 nodes`,
 * the most frequent first. A fact that a node does not publish is left out.
 */
export function describeOffers(
  entries: readonly RegistryEntry[],
  required: readonly Requirement[],
  model: string,
  now: number,
): string {
  const keys = [...new Set(required.map(({ key }) => key))];
  const kinds = new Map<string, number>();
  for (const entry of entries) {
    const served = entry.models.find(({ id }) => id === model);
    const facts = { ...nodeFacts(entry, now), ...(served === undefined ? {} : modelFacts(served)) };
    const kind = keys.flatMap((key) => shown(key, facts[key])).join(' ');
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  const sorted = [...kinds].sort((a, b) => b[1] - a[1]);
  const listed = sorted
    .slice(0, OFFERS_MAX)
    .map(([kind, count]) => (kind === NOTHING ? silent(count, keys) : `with ${kind} by ${nodes(count)}`));
  return listed.join(', ') + (sorted.length > OFFERS_MAX ? ', …' : '');
}

/** The part about nodes that may have it but do not publish it. */
function silent(count: number, keys: readonly RequirementKey[]): string {
  const which = count === 1 ? 'that does' : 'that do';
  return `by ${nodes(count)} ${which} not publish ${keys.join(' or ')}`;
}

function nodes(count: number): string {
  return `${count} ${count === 1 ? 'node' : 'nodes'}`;
}

function shown(key: RequirementKey, values: readonly (string | number)[] | undefined): string[] {
  const distinct = [...new Set(values)];
  if (distinct.length === 0) return [];
  return [`${key}=${distinct.map((value) => (key === 'time_left' ? duration(value) : String(value))).join('+')}`];
}

function duration(value: string | number): string {
  if (typeof value === 'string' || value === Number.POSITIVE_INFINITY) return 'unlimited';
  return `${Math.max(0, Math.floor(value / 60_000))}m`;
}
