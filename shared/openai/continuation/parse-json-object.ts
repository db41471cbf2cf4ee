import { parseJson } from '../../text/parse-json.ts';
import { decodeUtf8 } from '../byte-search.ts';
import { isObject } from '../token-usage.ts';

/** Parses a JSON object. Undefined if the bytes are anything else. */
export function parseJsonObject(bytes: Uint8Array): Record<string, unknown> | undefined {
  try {
    const value: unknown = parseJson(decodeUtf8(bytes));
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
