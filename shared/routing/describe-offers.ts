import type { RegistryEntry } from '../lattice/node-record.ts';
import { modelFacts, nodeFacts } from './requirement-facts.ts';
import type { Requirement, RequirementKey } from './requirements.ts';

/** Maximum number of listed kinds of nodes, because an error message is not a list of all nodes. */
const OFFERS_MAX = 8;

/** How a provider publishes a fact that its agent cannot find out. */
const PUBLISHED_BY: Partial<Record<RequirementKey, string>> = {
  quantization: '--fact quantization=bf16',
  precision: '--fact quantization=bf16',
  context: '--fact context=32768',
  engine: '--fact engine=vllm',
  region: '--region NAME',
  reasoning_budget: '--label reasoning-budget=NAME',
};

/**
 * Describes what nodes offer instead, if none meets the requirements: for each required fact the nodes' values, such as
 * `with gpu=A100 context=32768 by 3 nodes`, the most frequent first. If a node does not publish a fact, the text says
 * that it is unknown, and how a provider publishes it.
 */
export function describeOffers(
  entries: readonly RegistryEntry[],
  required: readonly Requirement[],
  model: string,
  now: number,
): string {
  const keys = [...new Set(required.map(({ key }) => key))];
  const kinds = new Map<string, number>();
  const unknown = new Set<RequirementKey>();
  for (const entry of entries) {
    const served = entry.models.find(({ id }) => id === model);
    const facts = { ...nodeFacts(entry, now), ...(served === undefined ? {} : modelFacts(served)) };
    for (const key of keys) if (!facts[key]?.length) unknown.add(key);
    const kind = keys.map((key) => shown(key, facts[key])).join(' ');
    kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
  }
  const sorted = [...kinds].sort((a, b) => b[1] - a[1]);
  const listed = sorted.slice(0, OFFERS_MAX).map(([kind, count]) => `with ${kind} by ${nodes(count)}`);
  const remedies = keys.flatMap((key) => (unknown.has(key) && PUBLISHED_BY[key]) || []);
  const remedy = remedies.length === 0 ? '' : ` (a provider publishes what is unknown: ${remedies.join(' ')})`;
  return listed.join(', ') + (sorted.length > OFFERS_MAX ? ', …' : '') + remedy;
}

function nodes(count: number): string {
  return `${count} ${count === 1 ? 'node' : 'nodes'}`;
}

function shown(key: RequirementKey, values: readonly (string | number)[] | undefined): string {
  const distinct = [...new Set(values)];
  if (distinct.length === 0) return `${key}=unknown`;
  return `${key}=${distinct.map((value) => (key === 'time_left' ? duration(value) : String(value))).join('+')}`;
}

function duration(value: string | number): string {
  if (typeof value === 'string' || value === Number.POSITIVE_INFINITY) return 'unlimited';
  return `${Math.max(0, Math.floor(value / 60_000))}m`;
}
