/** Rows that tests need before any request is possible. */
import { env } from 'cloudflare:workers';
import { apiKeys, type Role } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { KEY_PREFIX, newId, newSecret } from '../../../gateway/accounts/secrets.ts';

export async function seedKey(
  role: Role,
  more: { userId?: string } = {},
): Promise<{ id: string; key: string; hash: string }> {
  const { plaintext, hash, prefix } = newSecret(KEY_PREFIX);
  const id = newId('key');
  await database(env)
    .insert(apiKeys)
    .values({ id, hash, prefix, name: 'test', role, createdAt: Date.now(), ...more });
  return { id, key: plaintext, hash };
}

export function withKey(key: string): Request {
  return new Request('https://gateway.test/v1/models', { headers: { authorization: `Bearer ${key}` } });
}

/** The database during an outage of D1; `queries` counts the batches. */
export function watchedDb(down: () => boolean): { DB: D1Database; queries(): number } {
  let queries = 0;
  const DB = new Proxy(env.DB, {
    get(target, name) {
      if (name !== 'prepare' && name !== 'batch') return Reflect.get(target, name);
      if (name === 'batch') queries += 1;
      if (down()) throw new Error('D1_ERROR: Network connection lost.');
      return Reflect.get(target, name).bind(target);
    },
  });
  return { DB, queries: () => queries };
}
