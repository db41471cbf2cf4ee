/**
 * The `metadata` member of a request. Only strings are read, and their number and length are bounded. A member that
 * restricts routing is never dropped silently.
 */
import { ApiError } from './api-errors.ts';
import type { JsonReader } from './json-reader.ts';

/**
 * OpenAI allows 16 pairs, with keys of 64 and values of 512 characters. These limits are higher, so that lists of
 * providers fit.
 */
const MAX_METADATA_ENTRIES = 64;
const MAX_KEY_BYTES = 256;
const MAX_VALUE_BYTES = 4096;

/** Members with this prefix restrict where a request may go. If one cannot be applied, the request is refused. */
const OTELA_PREFIX = 'otela_';

/**
 * Reads the value at `pos`. Members that are not strings, that are too long, or that exceed the number are dropped. If
 * a key occurs twice, the last value counts, as in all JSON that is read here.
 * @returns undefined if the value is not an object
 * @throws ApiError 400 if a member with our prefix occurs twice or cannot be read
 */
export function readMetadata(reader: JsonReader): Record<string, string> | undefined {
  if (reader.bytes[reader.pos] !== 0x7b) {
    reader.value(1);
    return undefined;
  }
  const kept = new Map<string, string>();
  const ours = new Set<string>();
  reader.object((keyAt) => {
    const key = keyAt.end - keyAt.start > MAX_KEY_BYTES ? undefined : reader.text(keyAt);
    const isOurs = key?.startsWith(OTELA_PREFIX) ?? false;
    const param = `metadata.${key}`;
    if (key !== undefined && isOurs) {
      if (ours.has(key)) throw new ApiError('duplicate_key', `'${param}' occurs more than once.`, { param });
      if (ours.size >= MAX_METADATA_ENTRIES)
        throw new ApiError(
          'invalid_request',
          `At most ${MAX_METADATA_ENTRIES} keys of 'metadata' may begin with '${OTELA_PREFIX}'.`,
          { param },
        );
      ours.add(key);
    }
    const start = reader.pos;
    const first = reader.bytes[start];
    const escaped = first === 0x22 && reader.string();
    if (first !== 0x22) reader.value(2);
    const end = reader.pos;
    if (key === undefined || (isOurs && first === 0x6e)) return;
    const fits = first === 0x22 && end - start <= MAX_VALUE_BYTES;
    const room = kept.size < MAX_METADATA_ENTRIES || kept.has(key);
    if (fits && (room || isOurs)) kept.set(key, reader.text({ start, end, escaped }));
    else if (isOurs) throw new ApiError('invalid_request', `'${param}' must be a string of at most 4 KiB.`, { param });
    else kept.delete(key);
  });
  return Object.fromEntries(kept);
}
