/** The top-level keys that a gateway reads from a body, in every spelling in which an engine may read the same key. */

import { ApiError } from './api-errors.ts';
import { encodeUtf8 } from './byte-search.ts';
import type { JsonReader, StringSpan } from './json-reader.ts';
import { SAMPLING_KEYS, type SamplingKey } from './sampling-parameters.ts';

/**
 * vLLM's key for the limit of reasoning tokens, at the body's top level:
 * https://docs.vllm.ai/en/latest/features/reasoning_outputs/
 */
export const BUDGET_KEY = 'thinking_token_budget';

const OWN = [
  'model',
  'stream',
  'stream_options',
  'metadata',
  'user',
  'prompt_cache_key',
  'previous_response_id',
  'store',
  'background',
  BUDGET_KEY,
] as const;
/** Keys that `scan-json-body.ts` reads itself. The values of the other keys are numbers. */
type OwnKey = (typeof OWN)[number];
export type KnownKey = OwnKey | SamplingKey;

export const KNOWN_KEYS: readonly KnownKey[] = [...OWN, ...SAMPLING_KEYS];
const byText = new Map<string, KnownKey>(KNOWN_KEYS.map((name) => [name, name]));
const samplingKeys: ReadonlySet<string> = new Set(SAMPLING_KEYS);

interface Known {
  name: KnownKey;
  bytes: Uint8Array;
}
const NONE: Known[] = [];
/** Keys by their length, which distinguishes most of them. */
const byLength: Known[][] = [];
for (const name of KNOWN_KEYS)
  byLength[name.length] = [...(byLength[name.length] ?? []), { name, bytes: encodeUtf8(name) }];

/** `\uXXXX` is the longest encoding of one letter. */
const BYTES_PER_CHAR = 6;
const MAX_KEY_BYTES = 2 + BYTES_PER_CHAR * Math.max(...KNOWN_KEYS.map((name) => name.length));

export function isSamplingKey(name: KnownKey): name is SamplingKey {
  return samplingKeys.has(name);
}

/** Returns the listed key, even if it is written with escapes, because every engine reads `"\u006dodel"` as `model`. */
export function knownKeyOf(reader: JsonReader, key: StringSpan): KnownKey | undefined {
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
 * Returns the listed key that a case-insensitive parser would read. Go's encoding/json takes `Model`, and even
 * `to\u212Aens`, for the lower-case key. Such a second key could replace the value that was checked.
 */
export function keyInOtherCase(reader: JsonReader, key: StringSpan): KnownKey | undefined {
  if (key.end - key.start > MAX_KEY_BYTES || !mayFold(reader.bytes, key)) return undefined;
  return byText.get(reader.text(key).toUpperCase().toLowerCase());
}

/**
 * True if the key may equal a listed key in another case. False for most keys, which are in lower case and then need
 * not be decoded.
 */
function mayFold(bytes: Uint8Array, key: StringSpan): boolean {
  if (key.escaped) return true;
  for (let at = key.start + 1; at < key.end - 1; at++) {
    const byte = bytes[at] ?? 0;
    if (byte >= 0x80 || (byte >= 0x41 && byte <= 0x5a)) return true;
  }
  return false;
}

export function duplicateKey(param: string): ApiError {
  return new ApiError('duplicate_key', `The key '${param}' occurs more than once in the request body.`, { param });
}
