import { textOf } from '../bytes.ts';
import { isObject } from '../usage.ts';

/** Undefined where the bytes are no JSON object. */
export function parseObject(bytes: Uint8Array): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(textOf(bytes));
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
