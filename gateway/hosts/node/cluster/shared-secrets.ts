/** Secrets that all processes of an installation share, encrypted in PostgreSQL. The issuer's root key is not there. */
import * as z from 'zod';
import type { Connection, PostgresPool } from '../postgresql/postgres-pool.ts';
import { type ClusterKey, decryptSecret, encryptSecret } from './cluster-key.ts';

const NAME = 'installation';
/** Number of the lock while the secrets are read or created. */
const SECRETS_LOCK = 7_391_028;

const secretsSchema = z.object({
  /** The operator's first key. */
  adminKey: z.string(),
  /** Settings with the issuer's keys; see workerSecrets. */
  issuer: z.record(z.string(), z.string()),
});
export type SharedSecrets = z.infer<typeof secretsSchema>;

/**
 * Returns the stored secrets. The first process creates them. `renew` may return newer ones, for example if the
 * certificate was renewed.
 */
export async function sharedSecrets(
  pool: PostgresPool,
  key: ClusterKey,
  secrets: { create(): Promise<SharedSecrets>; renew(stored: SharedSecrets): Promise<SharedSecrets | undefined> },
): Promise<SharedSecrets> {
  return pool.withConnection(async (connection) => {
    await connection.query(`BEGIN; SELECT pg_advisory_xact_lock(${SECRETS_LOCK})`);
    const stored = await storedSecrets(connection, key);
    const changed = stored === undefined ? await secrets.create() : await secrets.renew(stored);
    if (changed !== undefined) await storeSecrets(connection, key, changed);
    await connection.query('COMMIT');
    return changed ?? secretsSchema.parse(stored);
  });
}

/** @throws CommandError if they were stored with another key */
export async function storedSecrets(connection: Connection, key: ClusterKey): Promise<SharedSecrets | undefined> {
  const [row] = (await connection.query('SELECT value FROM gateway_secrets WHERE name = $1', [NAME])).rows;
  if (row === undefined) return undefined;
  return secretsSchema.parse(JSON.parse(decryptSecret(key, NAME, String(row[0]))));
}

export async function storeSecrets(connection: Connection, key: ClusterKey, secrets: SharedSecrets): Promise<void> {
  const store = 'INSERT INTO gateway_secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2';
  await connection.query(store, [NAME, encryptSecret(key, NAME, JSON.stringify(secrets))]);
}
