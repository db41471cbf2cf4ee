import { parseJson } from '../../text/json.ts';
import { textOf } from '../bytes.ts';
import { isObject } from '../usage.ts';

/** Undefined if the bytes are not a JSON object. */
export function parseObject(bytes: Uint8Array): Record<string, unknown> | undefined {
  try {
    const value: unknown = parseJson(textOf(bytes));
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
