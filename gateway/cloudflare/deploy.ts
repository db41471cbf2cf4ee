/**
 * Deploys a clone to Cloudflare in one run. Every step first checks what exists, so an interrupted run can be repeated.
 */

import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';
import { DeployRefusedError, secretsOf, workerExists } from './deployed-worker.ts';
import { recordSentSecrets, wantedSecrets, withSecretsFile } from './worker-secrets.ts';
import type { Wrangler } from './wrangler.ts';
import { jsonFromOutput } from './wrangler.ts';
import { configFor, databaseIdIn, readWranglerConfig, withConfig } from './wrangler-config.ts';

/** Output of `wrangler d1 list`. */
const listSchema = z.array(z.object({ uuid: z.string(), name: z.string() }));

/**
 * Finds the installation's D1 database by its name, or creates it. Returns its id. `before` is called before the
 * creation and may throw. If two runs create it concurrently, Cloudflare refuses the second creation.
 */
async function findOrMakeDatabase(
  wrangler: Wrangler,
  name: string,
  jurisdiction: string | undefined,
  before: () => Promise<void>,
): Promise<{ id: string; made: boolean }> {
  const found = await find(wrangler, name);
  if (found !== undefined) return { id: found, made: false };
  await before();
  await wrangler(['d1', 'create', name, ...(jurisdiction === undefined ? [] : ['--jurisdiction', jurisdiction])]);
  const id = await find(wrangler, name);
  if (id === undefined)
    throw new Error(`the D1 database "${name}" was created but is not in the list yet; run this again in a minute`);
  return { id, made: true };
}

async function find(wrangler: Wrangler, name: string): Promise<string | undefined> {
  const all = listSchema.parse(jsonFromOutput(await wrangler(['d1', 'list', '--json'])));
  return all.find((database) => database.name === name)?.uuid;
}

/**
 * Finds the installation's R2 bucket by its name, or creates it; it stores uploaded files and the results of batches.
 * Returns true if it was created. A bucket with a jurisdiction is only in the list of that jurisdiction, so both
 * commands name it.
 */
async function findOrMakeBucket(wrangler: Wrangler, name: string, jurisdiction: string | undefined): Promise<boolean> {
  const where = jurisdiction === undefined ? [] : ['--jurisdiction', jurisdiction];
  const listed = await wrangler(['r2', 'bucket', 'list', ...where]);
  if (new RegExp(`^name:\\s+${name}$`, 'm').test(listed)) return false;
  await wrangler(['r2', 'bucket', 'create', name, ...where, '--no-update-config']);
  return true;
}

/** Maximum wait for the Worker to answer. A new name on workers.dev is known everywhere within a minute. */
const READY_MS = 90_000;
const RETRY_MS = 1_000;
const ANSWER_MS = 10_000;
interface DeployOptions {
  root: string;
  wrangler: Wrangler;
  name: string;
  production: boolean;
  database: string;
  jurisdiction: string | undefined;
  releaseKeys: string | undefined;
  /** Directory with the installation's keys. */
  keys: string;
  newAdminKey: boolean;
  /** True if the operator's key may be printed: only on a terminal, because other people may read a log. */
  showKey: boolean;
  /** URL for clients. Undefined: the URL that Cloudflare reports. */
  url: string | undefined;
  /** Current time; seconds since 1970. */
  nowS: number;
  /** Builds the files that are deployed with the Worker. */
  build(): Promise<void>;
  log(line: string): void;
}

interface Deployed {
  url: string | undefined;
  /** Path of the file with the operator's key. Undefined unless this run created the key. */
  adminKeyFile: string | undefined;
}

/** @throws WranglerError with wrangler's output; DeployRefusedError if the deployment would harm a running Worker */
export async function deploy(options: DeployOptions): Promise<Deployed> {
  const { root, wrangler, name, production, keys, log } = options;
  const clone = await readWranglerConfig(root);
  const id = databaseIdIn(clone) ?? (await database(options));
  const bucket = { name: `${name}-files`, jurisdiction: options.jurisdiction };
  const made = await findOrMakeBucket(wrangler, bucket.name, bucket.jurisdiction);
  log(`R2 ${bucket.name}: ${made ? 'made' : 'found'}`);
  const config = configFor(clone, {
    name,
    database: { name: options.database, id },
    bucket,
    releaseKeys: options.releaseKeys,
  });
  await options.build();
  return withConfig(root, config, async (file) => {
    const where = ['--config', file, `--env=${production ? 'production' : ''}`];
    // Migrations are applied before the new code is deployed. They only add tables and columns, so they do not affect
    // the old code, which still runs.
    await wrangler(['d1', 'migrations', 'apply', options.database, '--remote', ...where]);
    log('migrations: applied');
    const listed = (await secretsOf(wrangler, where)) ?? [];
    const { secrets, adminKey, notes } = await wantedSecrets(keys, listed, options);
    for (const note of notes) log(`note: ${note}`);
    // Printed immediately: the key is on disk, and later steps may fail.
    const kept = join(keys, 'admin.key');
    if (adminKey !== undefined)
      log(
        options.showKey ? `admin key, shown only once (and stored in ${kept}): ${adminKey}` : `admin key: in ${kept}`,
      );
    const output = await send(options, secrets, where);
    const url = options.url ?? /https:\/\/\S+\.workers\.dev/.exec(output)?.[0];
    log(`Worker: deployed as ${name}${url === undefined ? '' : ` at ${url}`}`);
    if (url !== undefined) await ready(url, log);
    return { url, adminKeyFile: adminKey === undefined ? undefined : kept };
  });
}

async function database({ wrangler, name: worker, database: name, jurisdiction, log }: DeployOptions): Promise<string> {
  const { id, made } = await findOrMakeDatabase(wrangler, name, jurisdiction, async () => {
    // There is no database of this name. If the Worker already runs, its database, with all accounts, must have another
    // name.
    if (await workerExists(wrangler, worker))
      throw new DeployRefusedError(
        `Worker ${worker} already runs, but there is no D1 database "${name}": give the name of its database with --database. To create an empty one: npx wrangler d1 create`,
      );
  });
  log(`D1 ${name}: ${made ? 'made' : 'found'}, ${id}`);
  return id;
}

/**
 * Deploys code and missing secrets as one version, so that neither ever runs without the other. Secrets that are
 * already set stay.
 */
async function send({ wrangler, keys, log }: DeployOptions, secrets: Record<string, string>, where: readonly string[]) {
  const names = Object.keys(secrets);
  log(names.length === 0 ? 'secrets: all are set' : `secrets: setting ${names.join(', ')}`);
  if (names.length === 0) return wrangler(['deploy', ...where]);
  const output = await withSecretsFile(keys, secrets, (file) => wrangler(['deploy', ...where, '--secrets-file', file]));
  await recordSentSecrets(keys, secrets);
  return output;
}

async function ready(url: string, log: (line: string) => void): Promise<void> {
  const deadline = Date.now() + READY_MS;
  for (;;) {
    const status = await fetch(new URL('/readyz', url), { signal: AbortSignal.timeout(ANSWER_MS) }).then(
      (response) => String(response.status),
      (error: unknown) =>
        error instanceof Error && error.cause instanceof Error ? error.cause.message : String(error),
    );
    if (status === '200') return log('ready: the gateway and its account store answer');
    if (Date.now() > deadline)
      throw new Error(`deployed, but ${url}/readyz returns ${status}; npx wrangler tail shows why`);
    await delay(RETRY_MS);
  }
}
