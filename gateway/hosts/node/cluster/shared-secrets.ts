/** Secrets that all processes of an installation share, encrypted in PostgreSQL. The issuer's root key is not there. */
import * as z from 'zod';
import type { PostgresPool } from '../postgresql/postgres-pool.ts';
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
    const [row] = (await connection.query('SELECT value FROM gateway_secrets WHERE name = $1', [NAME])).rows;
    const stored =
      row === undefined ? undefined : secretsSchema.parse(JSON.parse(decryptSecret(key, NAME, String(row[0]))));
    const changed = stored === undefined ? await secrets.create() : await secrets.renew(stored);
    if (changed !== undefined) {
      const store =
        'INSERT INTO gateway_secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2';
      await connection.query(store, [NAME, encryptSecret(key, NAME, JSON.stringify(changed))]);
    }
    await connection.query('COMMIT');
    return changed ?? secretsSchema.parse(stored);
  });
}
