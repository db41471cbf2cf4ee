import { fnv1a } from '../text/hash.ts';
import type { Json } from './batch-line.ts';

/**
 * Length of the beginning that is compared. Engines cache prompts in blocks from the start, so differences after this
 * length do not matter for the order.
 */
const PREFIX_CHARS = 1_024;

/**
 * A hash of the prompt's beginning. Lines with equal beginnings have equal hashes. If such lines run one after another,
 * an engine with a prefix cache computes the beginning only once. A collision only affects the order.
 */
export function promptPrefixHash(body: Json): number {
  return fnv1a(beginning(body));
}

function beginning(body: Json): string {
  const { messages, prompt, instructions, input } = body;
  const first = Array.isArray(messages) ? messages[0] : (instructions ?? prompt ?? input);
  return (typeof first === 'string' ? first : (JSON.stringify(first) ?? '')).slice(0, PREFIX_CHARS);
}

/**
 * Sorts the positions of lines so that lines with equal prefixes are adjacent. Prefixes are in the order of their first
 * occurrence.
 */
export function orderByPrefix(prefixes: readonly number[]): number[] {
  const rank = new Map<number, number>();
  for (const prefix of prefixes) if (!rank.has(prefix)) rank.set(prefix, rank.size);
  const rankOf = (at: number) => rank.get(prefixes[at] ?? 0) ?? 0;
  return prefixes.map((_, at) => at).sort((a, b) => rankOf(a) - rankOf(b) || a - b);
}
