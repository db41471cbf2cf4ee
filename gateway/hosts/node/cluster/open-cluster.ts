/** Opens what a process needs to be one of several: its number, the shared secrets, and its connections. */
import { randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { writePrivateFile } from '../../../../node/private-file.ts';
import manifest from '../../../../package.json' with { type: 'json' };
import { nowS } from '../../../platform/unix-time.ts';
import type { DataDirectory } from '../data/data-directory.ts';
import { openIssuer, workerSecrets, writeWorkerSecrets } from '../issuer/issuer-files.ts';
import { preparePostgres } from '../postgresql/postgres-accounts.ts';
import { PostgresPool } from '../postgresql/postgres-pool.ts';
import { type ClusterKey, readClusterKey } from './cluster-key.ts';
import { joinInstallation } from './join-installation.ts';
import type { ProcessIdentity } from './process-table.ts';
import { type SharedSecrets, sharedSecrets } from './shared-secrets.ts';

export interface ClusterFlags {
  keyFile: string;
  /** This process listens for the others here, and they reach it here. */
  host: string;
  port: number;
  /** URL at which agents reach this process. */
  url: string | undefined;
}

export interface ClusterParts {
  key: ClusterKey;
  /** URL of the database. */
  url: string;
  flags: ClusterFlags;
  /** Its address is known when the process listens for links. */
  me: ProcessIdentity;
  secrets: SharedSecrets;
  /** A single connection that only heartbeats and slots use. */
  control: PostgresPool;
  /** Connections of the objects' log. */
  objects: PostgresPool;
  /** Directory of the owned objects' databases while they are in memory. */
  scratch: string;
  close(): Promise<void>;
}

/** Appends, and reads of objects that are loaded. */
const OBJECT_CONNECTIONS = 3;

type Migrations = Parameters<typeof preparePostgres>[1];

/** @throws CommandError */
export async function openCluster(
  url: string,
  data: DataDirectory,
  flags: ClusterFlags,
  migrations: Migrations,
): Promise<ClusterParts> {
  const key = readClusterKey(flags.keyFile);
  await preparePostgres(url, migrations);
  const control = new PostgresPool({ url, name: 'otela-gateway control', most: 1 });
  const objects = new PostgresPool({ url, name: 'otela-gateway objects', most: OBJECT_CONNECTIONS });
  const close = async () => {
    await Promise.all([control.close(), objects.close()]);
  };
  try {
    const process = await joinInstallation(control, data.path);
    const secrets = await sharedSecrets(objects, key, {
      create: async () => ({ adminKey: data.adminKey, issuer: workerSecrets(await openIssuer(data.issuer, nowS())) }),
      renew: (stored) => renewedSecrets(data, stored),
    });
    if (secrets.adminKey !== data.adminKey) writePrivateFile(join(data.path, 'admin.key'), `${secrets.adminKey}\n`);
    const me = { incarnation: randomUUID(), process, address: '', url: flags.url, version: manifest.version };
    return { key, url, flags, me, secrets, control, objects, scratch: join(data.path, 'scratch'), close };
  } catch (error) {
    await close();
    throw error;
  }
}

/**
 * Only a directory with the issuer's root key changes the secrets: it renews the certificate, and its admin.key replaces
 * the operator's first key.
 */
async function renewedSecrets(data: DataDirectory, stored: SharedSecrets): Promise<SharedSecrets | undefined> {
  if (!existsSync(join(data.issuer, 'root.key'))) return undefined;
  // Another directory had the root key before. Without these files, this one would create another gateway key.
  if (!existsSync(join(data.issuer, 'gateway.key'))) await writeWorkerSecrets(data.issuer, stored.issuer);
  const current = { adminKey: data.adminKey, issuer: workerSecrets(await openIssuer(data.issuer, nowS())) };
  return JSON.stringify(current) === JSON.stringify(stored) ? undefined : current;
}
