/** The top-level keys of a body that a gateway reads, in every way in which an engine may read the same key. */
import { utf8 } from './bytes.ts';
import { ApiError } from './errors.ts';
import type { JsonReader, StringAt } from './json.ts';
import { BUDGET_KEY } from './reasoning.ts';
import { SAMPLING_KEYS, type SamplingKey } from './sampling.ts';

const OWN = ['model', 'stream', 'stream_options', 'metadata', 'user', 'prompt_cache_key', BUDGET_KEY] as const;
/** Keys that `scan.ts` reads itself; the others are numbers. */
type OwnKey = (typeof OWN)[number];
export type ListedKey = OwnKey | SamplingKey;

export const LISTED: readonly ListedKey[] = [...OWN, ...SAMPLING_KEYS];
const byText = new Map<string, ListedKey>(LISTED.map((name) => [name, name]));
const samplingKeys: ReadonlySet<string> = new Set(SAMPLING_KEYS);

interface Known {
  name: ListedKey;
  bytes: Uint8Array;
}
const NONE: Known[] = [];
/** Indexed by length: most keys of a body are told apart by it alone. */
const byLength: Known[][] = [];
for (const name of LISTED) byLength[name.length] = [...(byLength[name.length] ?? []), { name, bytes: utf8(name) }];

/** `\uXXXX` is the longest way to write one letter. */
const BYTES_PER_CHAR = 6;
const MAX_KEY_BYTES = 2 + BYTES_PER_CHAR * Math.max(...LISTED.map((name) => name.length));

export function isSamplingKey(name: ListedKey): name is SamplingKey {
  return samplingKeys.has(name);
}

/** Which listed key this is, also when it is written with escapes: `"\u006dodel"` is `model` to every engine. */
export function listedKey(reader: JsonReader, key: StringAt): ListedKey | undefined {
  if (key.escaped) return key.end - key.start > MAX_KEY_BYTES ? undefined : byText.get(reader.text(key));
  const first = key.start + 1;
  for (const { name, bytes } of byLength[key.end - key.start - 2] ?? NONE) {
    let at = 0;
    while (at < bytes.length && reader.bytes[first + at] === bytes[at]) at++;
    if (at === bytes.length) return name;
  }
  return undefined;
}

/**
 * Go's encoding/json takes `Model` and even `to\u212Aens` for the key in small letters: after it, it would be another way round what
 * was checked.
 */
export function inOtherCase(reader: JsonReader, key: StringAt): ListedKey | undefined {
  if (key.end - key.start > MAX_KEY_BYTES || !mayFold(reader.bytes, key)) return undefined;
  return byText.get(reader.text(key).toUpperCase().toLowerCase());
}

/** Most keys are small letters, and are not decoded. */
function mayFold(bytes: Uint8Array, key: StringAt): boolean {
  if (key.escaped) return true;
  for (let at = key.start + 1; at < key.end - 1; at++) {
    const byte = bytes[at] ?? 0;
    if (byte >= 0x80 || (byte >= 0x41 && byte <= 0x5a)) return true;
  }
  return false;
}

export function duplicateKey(param: string): ApiError {
  return new ApiError('duplicate_key', `The key '${param}' stands more than once in the request body.`, { param });
}
