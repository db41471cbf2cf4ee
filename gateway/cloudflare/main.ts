/** `npm run deploy`. */
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { loadWorkerBundle } from '../standalone/node/worker-bundle.ts';
import { readConfig, releaseKeysIn } from './config.ts';
import { deploy } from './deploy.ts';
import { remembered } from './remembered.ts';
import { wranglerIn } from './wrangler.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const [DONE, FAILED, WRONG_USE] = [0, 1, 2];

const USAGE = `npm run deploy -- [flags]: a gateway on Cloudflare, from this clone. Safe to run again, whatever happened.

  npx wrangler login && npm run deploy                         a trial: any agent with a join token is admitted
  npm run deploy -- --production --release-keys KEY            for others than yourself
  npm run deploy                                               after git pull && npm ci: an upgrade

Finds or makes D1, applies migrations, makes the admin key and the issuer's keys where Cloudflare lacks them, deploys, and waits until
it answers. Keys are kept in cloudflare-keys/NAME (0600): back them up, root.key above all. What is said once is remembered there.

  --production             the environment of that name in wrangler.toml: signed agents, marked providers (--no-production: a trial)
  --release-keys KEY,…     with --production: whose releases agents must be of
  --name NAME              of the Worker [opentela-gateway]
  --database NAME          of D1 [the Worker's name]
  --jurisdiction eu        where D1 may keep its data; when it is made
  --keys DIR               [cloudflare-keys/NAME]
  --new-admin-key          another one; the old one is dead
  --url URL                where clients reach it, if not at workers.dev
  --json

Exit codes: 0 done, 1 failed (run it again), 2 wrong use.`;

async function main(args: string[]): Promise<number> {
  const { values } = parseArgs({
    args,
    allowNegative: true,
    options: {
      production: { type: 'boolean' },
      'release-keys': { type: 'string' },
      name: { type: 'string', default: 'opentela-gateway' },
      database: { type: 'string' },
      jurisdiction: { type: 'string' },
      keys: { type: 'string' },
      'new-admin-key': { type: 'boolean', default: false },
      url: { type: 'string' },
      json: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h', default: false },
    },
  });
  if (values.help) {
    console.log(USAGE);
    return DONE;
  }
  const { name } = values;
  const keys = resolve(values.keys ?? join(ROOT, 'cloudflare-keys', name));
  const given = {
    production: values.production,
    database: values.database,
    jurisdiction: values.jurisdiction,
    release_keys: values['release-keys'],
    url: values.url,
  };
  const { production = false, database = name, jurisdiction, release_keys, url } = await remembered(keys, given);
  for (const word of [name, database])
    if (!/^[a-z0-9][a-z0-9-]{0,62}$/.test(word)) return wrongUse(`"${word}" is no name`);
  if (release_keys !== undefined && !/^[\w,-]+$/.test(release_keys))
    return wrongUse('--release-keys: base64url, between commas');
  if (production && release_keys === undefined && !releaseKeysIn(await readConfig(ROOT)))
    return wrongUse('--production without --release-keys: no agent would be admitted');
  const deployed = await deploy({
    root: ROOT,
    wrangler: wranglerIn(ROOT, process.env),
    name,
    production,
    database,
    jurisdiction,
    releaseKeys: release_keys,
    keys,
    newAdminKey: values['new-admin-key'],
    url,
    nowS: Math.floor(Date.now() / 1000),
    build: async () => void (await loadWorkerBundle()),
    log: (line) => console.error(line),
  });
  if (values.json)
    console.log(JSON.stringify({ name, url: deployed.url ?? null, admin_key: deployed.adminKey ?? null }));
  else
    console.error(
      'Next: otela-gateway keys create and tokens create with --url and --key-file, as docs/deploy.md says.',
    );
  return DONE;
}

function wrongUse(message: string): number {
  console.error(`npm run deploy: ${message}\nTry: npm run deploy -- --help`);
  return WRONG_USE;
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  const message = error instanceof Error ? error.message : String(error);
  const use = error instanceof TypeError && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS');
  if (use) process.exitCode = wrongUse(message);
  else {
    console.error(`npm run deploy: ${message}\n\nNothing is lost: run it again.`);
    process.exitCode = FAILED;
  }
}
