/** Bytes, cuts and JSON text for the tests of this folder. */
import fc from 'fast-check';

export const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
export const text = (parts: Uint8Array | readonly Uint8Array[]): string =>
  Buffer.concat(parts instanceof Uint8Array ? [parts] : parts).toString('utf8');

/** Cuts at these offsets (modulo the length), in any order; copies, so that no piece can see its neighbor. */
export function cut(whole: Uint8Array, at: readonly number[]): Uint8Array[] {
  const edges = [...new Set(at.map((offset) => offset % (whole.length + 1)))].sort((a, b) => a - b);
  return [...edges, whole.length].map((edge, i) => whole.slice(edges[i - 1] ?? 0, edge));
}

export const cuts = fc.array(fc.nat(100_000), { maxLength: 12 });

export const space = fc.stringMatching(/^[ \t\r\n]{0,3}$/);

/** One way to write a string: each UTF-16 unit may be an escape. */
function jsonString(value: string, escapeEvery: number): string {
  if (escapeEvery === 0) return JSON.stringify(value);
  let out = '"';
  for (let i = 0; i < value.length; i++) {
    const hex = value.charCodeAt(i).toString(16).padStart(4, '0');
    out += i % escapeEvery === 0 ? `\\u${hex}` : JSON.stringify(value.charAt(i)).slice(1, -1);
  }
  return `${out}"`;
}

/**
 * Text of a JSON value with white space at every place that allows it. An object is a list of members, so that keys can
 * repeat.
 */
export type Tree =
  | { json: unknown }
  | { members: readonly (readonly [key: string, value: Tree, escapeEvery: number])[] };

export function write(tree: Tree, gap: () => string): string {
  if (!('members' in tree)) return gap() + JSON.stringify(tree.json) + gap();
  const members = tree.members.map(
    ([key, value, escapeEvery]) => `${gap()}${jsonString(key, escapeEvery)}${gap()}:${write(value, gap)}`,
  );
  return `${gap()}{${members.join(',')}${gap()}}${gap()}`;
}

/** Returns white space from a list, cyclically. */
export function gaps(list: readonly string[]): () => string {
  let i = 0;
  return () => list[i++ % Math.max(1, list.length)] ?? '';
}
