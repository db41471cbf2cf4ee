/**
 * Limits that Cloudflare enforces and its local runtime does not.
 * https://developers.cloudflare.com/durable-objects/platform/limits/
 */
import type { ObjectStorage } from '../../../gateway/platform/object-context.ts';

/** For a row, a string, a BLOB, and a key with its value. */
const VALUE_MAX_BYTES = 2_000_000;

/** Storage that throws as Cloudflare does if a value is too long. */
export function limitedStorage({ sql, kv }: Pick<ObjectStorage, 'sql' | 'kv'>): Pick<ObjectStorage, 'sql' | 'kv'> {
  return {
    sql: {
      exec: (query, ...bindings) => {
        if (bindings.reduce<number>((sum, value) => sum + bytesOf(value), 0) > VALUE_MAX_BYTES)
          throw new Error('string or blob too big: SQLITE_TOOBIG');
        return sql.exec(query, ...bindings);
      },
      get databaseSize() {
        return sql.databaseSize;
      },
    },
    kv: {
      get: (key) => kv.get(key),
      put: (key, value) => {
        if (bytesOf(key) + bytesOf(JSON.stringify(value)) > VALUE_MAX_BYTES) throw new Error('value too large');
        kv.put(key, value);
      },
      delete: (key) => kv.delete(key),
      list: (options) => kv.list(options),
    },
  };
}

function bytesOf(value: unknown): number {
  if (typeof value === 'string') return new TextEncoder().encode(value).length;
  return value instanceof ArrayBuffer ? value.byteLength : 8;
}
