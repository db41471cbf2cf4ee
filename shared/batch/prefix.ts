import type { Json } from './line.ts';

/** Engines cache prompts by blocks from the start; what differs later does not matter for the order. */
const PREFIX_CHARS = 1_024;

/**
 * A number that lines with the same beginning of their prompt share: an engine with a prefix cache computes that beginning once when such
 * lines run one after another. FNV-1a, 32 bits; a collision costs order, never correctness.
 */
export function prefixOf(body: Json): number {
  let hash = 0x811c9dc5;
  const text = beginning(body);
  for (let i = 0; i < text.length; i++) {
    hash ^= text.charCodeAt(i);
    hash = Math.imul(hash, 0x01000193);
  }
  return hash >>> 0;
}

function beginning(body: Json): string {
  const { messages, prompt, instructions, input } = body;
  const first = Array.isArray(messages) ? messages[0] : (instructions ?? prompt ?? input);
  return (typeof first === 'string' ? first : (JSON.stringify(first) ?? '')).slice(0, PREFIX_CHARS);
}

/** Positions of lines so that equal prefixes stand next to each other, in the order in which each prefix comes first. */
export function orderByPrefix(prefixes: readonly number[]): number[] {
  const rank = new Map<number, number>();
  for (const prefix of prefixes) if (!rank.has(prefix)) rank.set(prefix, rank.size);
  const rankOf = (at: number) => rank.get(prefixes[at] ?? 0) ?? 0;
  return prefixes.map((_, at) => at).sort((a, b) => rankOf(a) - rankOf(b) || a - b);
}
