/** `npm run deploy`: parses the options and deploys. */

import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import {
  EXIT_DONE,
  EXIT_USAGE,
  type Flags,
  flagTable,
  JSON_FLAG,
  parseLine,
  UsageError,
} from '../../shared/command-line/index.ts';
import { errorText } from '../../shared/text/error-text.ts';
import { dashboardDirectory } from '../hosts/node/serve/program-files.ts';
import { deploy } from './deploy.ts';
import { DeployRefusedError, workerExists } from './deployed-worker.ts';
import { wranglerIn } from './wrangler.ts';
import { databaseIdIn, readWranglerConfig, releaseKeysIn } from './wrangler-config.ts';

/** The options of an installation, which also apply to its upgrades. Stored as `installation.json` next to its keys. */
const schema = z.object({
  production: z.boolean().optional(),
  database: z.string().optional(),
  jurisdiction: z.string().optional(),
  release_keys: z.string().optional(),
  url: z.string().optional(),
});
type DeploymentChoices = z.infer<typeof schema>;

/**
 * Completes the given options by the stored options.
 * @returns known: this machine has deployed the installation, or has tried to
 */
async function recallDeployment(
  keys: string,
  given: { [name in keyof DeploymentChoices]: DeploymentChoices[name] | undefined },
): Promise<{ known: boolean; choices: DeploymentChoices }> {
  const text = await readFile(fileIn(keys), 'utf8').catch((error: unknown) => {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  });
  const now = Object.entries(given).filter(([, value]) => value !== undefined);
  const before = schema.parse(JSON.parse(text ?? '{}'));
  return { known: text !== undefined, choices: schema.parse({ ...before, ...Object.fromEntries(now) }) };
}

/** Stores the options for the next run. */
async function saveDeployment(keys: string, choices: DeploymentChoices): Promise<void> {
  await mkdir(keys, { recursive: true, mode: 0o700 });
  await writeFile(fileIn(keys), `${JSON.stringify(choices, null, 1)}\n`, { mode: 0o600 });
}

const fileIn = (keys: string) => join(keys, 'installation.json');

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const EXIT_FAILED = 1;

const FLAGS = {
  production: {
    help: 'use the environment production of wrangler.toml: only signed agents, and only providers trusted by default',
  },
  'no-production': { help: 'change a production deployment back to a trial' },
  'release-keys': { value: 'KEY,…', help: 'with --production: public keys that sign the releases of admitted agents' },
  name: { value: 'NAME', default: 'opentela-gateway', help: 'name of the Worker' },
  database: { value: 'NAME', otherwise: "the Worker's name", help: 'name of the D1 database' },
  jurisdiction: { value: 'eu', help: 'where D1 and R2 may store their data; only used when they are created' },
  keys: { value: 'DIR', otherwise: 'cloudflare-keys/NAME', help: 'directory for the keys of the gateway' },
  'new-admin-key': { help: 'create a new admin key and revoke the old one' },
  url: { value: 'URL', help: 'URL at which clients reach the gateway, if not at workers.dev' },
  help: { short: 'h', help: 'print this help' },
  ...JSON_FLAG,
} as const satisfies Flags;

const USAGE = `npm run deploy -- [flags]: deploy a gateway from this clone to Cloudflare. It is always safe to run again.

  npx wrangler login && npm run deploy                         for a trial: admits any agent with a join token
  npm run deploy -- --production --release-keys KEY            for other users
  npm run deploy                                               to upgrade, after git pull && npm ci

Finds or creates D1 and an R2 bucket, applies migrations, creates the admin key and the keys of the issuer if Cloudflare does not have them,
deploys, and waits until the gateway responds. Keys are in cloudflare-keys/NAME (mode 0600): back them up, above all root.key. Flags are
also stored there, for the next run.

${flagTable(FLAGS)}

Exit codes: 0 done, 1 failed (run it again), 2 wrong usage.`;

/** @throws UsageError if options contradict each other */
function checkChoices(
  names: readonly string[],
  { production, release_keys: given }: DeploymentChoices,
  hasKeys: boolean,
): void {
  for (const name of names)
    if (!/^[a-z0-9][a-z0-9-]{0,62}$/.test(name)) throw new UsageError(`"${name}" is not a name`);
  if (given !== undefined && !/^[\w,-]+$/.test(given))
    throw new UsageError('--release-keys must be keys in base64url, separated by commas');
  if (production && given === undefined && !hasKeys)
    throw new UsageError('--production without --release-keys: no agent would be admitted');
}

async function main(args: string[]): Promise<number> {
  const { values } = parseLine(args, FLAGS);
  if (values.help) {
    console.log(USAGE);
    return EXIT_DONE;
  }
  const { name } = values;
  const keys = resolve(values.keys ?? join(ROOT, 'cloudflare-keys', name));
  const given = {
    production: values['no-production'] ? false : values.production || undefined,
    database: values.database,
    jurisdiction: values.jurisdiction,
    release_keys: values['release-keys'],
    url: values.url,
  };
  const { known, choices } = await recallDeployment(keys, given);
  const { production = false, database = name, jurisdiction, release_keys, url } = choices;
  const clone = await readWranglerConfig(ROOT);
  checkChoices([name, database], choices, releaseKeysIn(clone));
  const wrangler = wranglerIn(ROOT, process.env);
  // The installation may have been deployed on another machine with options that are missing here. A trial that is
  // deployed over a production installation would admit every agent.
  const missing = [
    ...(given.production === undefined ? ['--production or --no-production'] : []),
    ...(given.database === undefined && databaseIdIn(clone) === undefined ? ['--database'] : []),
  ];
  if (!known && missing.length > 0 && (await workerExists(wrangler, name)))
    throw new UsageError(
      `Worker ${name} already runs and was not deployed from this clone: give ${missing.join(' and ')} with its current values ` +
        `(Cloudflare shows its variables and bindings), or copy ${keys}/ from the clone that deployed it. Nothing was changed`,
    );
  await saveDeployment(keys, choices);
  const deployed = await deploy({
    root: ROOT,
    wrangler,
    name,
    production,
    database,
    jurisdiction,
    releaseKeys: release_keys,
    keys,
    newAdminKey: values['new-admin-key'],
    showKey: process.stderr.isTTY === true && !values.json,
    url,
    nowS: Math.floor(Date.now() / 1000),
    build: async () => void (await dashboardDirectory()),
    log: (line) => console.error(line),
  });
  if (values.json)
    console.log(JSON.stringify({ name, url: deployed.url ?? null, admin_key_file: deployed.adminKeyFile ?? null }));
  else
    console.error('Next: otela-gateway keys create and tokens create with --url and --key-file; see docs/deploy.md.');
  return EXIT_DONE;
}

function wrongUse(message: string): number {
  console.error(`npm run deploy: ${message}\nTry: npm run deploy -- --help`);
  return EXIT_USAGE;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  const message = errorText(error);
  if (error instanceof UsageError || error instanceof DeployRefusedError) process.exitCode = wrongUse(message);
  else {
    console.error(`npm run deploy: ${message}\n\nNothing is lost: run it again.`);
    process.exitCode = EXIT_FAILED;
  }
}
