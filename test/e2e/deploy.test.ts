/**
 * `npm run deploy` with the real wrangler against a mock of Cloudflare's API: interrupted, run again, and run once
 * more.
 */
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { Cloudflare } from '../support/cloudflare.ts';
import { atEnd, endAll, temporaryDirectory } from '../support/processes.ts';
import { NODE, ROOT } from '../support/where.ts';

afterEach(endAll);

/** wrangler takes seconds to start, and a deployment starts it five times. */
const RUN_MS = 600_000;
const KEY = /sk-otela-[\w-]{43}/;
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');

function deploy(
  env: Record<string, string>,
  ...args: string[]
): Promise<{ code: number | null; out: string; err: string }> {
  return new Promise((resolve) => {
    const command = [join(ROOT, 'gateway/cloudflare/main.ts'), ...args];
    const child = spawn(NODE, command, { cwd: ROOT, env: { ...process.env, ...env }, timeout: RUN_MS });
    let [out, err] = ['', ''];
    child.stdout.on('data', (piece) => {
      out += piece;
    });
    child.stderr.on('data', (piece) => {
      err += piece;
    });
    child.once('close', (code) => resolve({ code, out, err }));
  });
}

it('deploys from nothing, goes on where it was cut off, and changes nothing when run again', async () => {
  const cloudflare = await Cloudflare.open();
  atEnd(() => cloudflare.close());
  const keys = join(await temporaryDirectory(), 'keys');
  const run = (...args: string[]) =>
    deploy(
      cloudflare.env,
      '--name',
      'gw-test',
      '--keys',
      keys,
      '--url',
      cloudflare.url,
      '--jurisdiction',
      'eu',
      ...args,
    );
  const migrations = () =>
    [...cloudflare.databases.values()].map(({ sqlite }) =>
      sqlite
        .prepare('SELECT name FROM d1_migrations')
        .all()
        .map(({ name }) => name),
    );
  const all = (await readdir(join(ROOT, 'migrations'))).filter((name) => name.endsWith('.sql')).sort();

  cloudflare.fail(/POST .*\/query$/, 5);
  const first = await run();
  expect([first.code, first.err]).toEqual([1, expect.stringContaining('An outage of the stand-in')]);
  expect(first.err).toMatch(/D1 gw-test: made/);
  expect(cloudflare.workers.size).toBe(0);
  expect(migrations()[0]?.length).toBeLessThan(all.length);

  cloudflare.fail(/PUT .*\/scripts\/gw-test$/);
  const second = await run();
  expect(second.code).toBe(1);
  expect(second.err).toMatch(/D1 gw-test: found/);
  expect(migrations()).toEqual([all]);
  // The key is on disk before Cloudflare gets anything, and its path is printed although the run failed; the log does
  // not contain the key.
  expect(second.err).toContain(`admin key: in ${join(keys, 'admin.key')}`);
  expect(second.err).not.toMatch(KEY);
  const key = readFileSync(join(keys, 'admin.key'), 'utf8').trim();
  expect(key).toMatch(KEY);
  expect(cloudflare.workers.size).toBe(0);

  const third = await run('--json');
  expect([third.code, JSON.parse(third.out)]).toEqual([
    0,
    { name: 'gw-test', url: cloudflare.url, admin_key_file: null },
  ]);
  const worker = cloudflare.workers.get('gw-test');
  expect(worker).toMatchObject({ deployments: 1, databases: [...cloudflare.databases.keys()] });
  expect(worker?.migrationTag).toMatch(/^v\d+$/);
  const secrets = new Map(worker?.secrets);
  expect([...secrets.keys()].sort()).toEqual(['ADMIN_KEY_SHA256', 'OTELA_GATEWAY_CERT', 'OTELA_GATEWAY_KEY']);
  expect(secrets.get('ADMIN_KEY_SHA256')).toBe(sha256(key));
  expect(secrets.get('OTELA_GATEWAY_KEY')).toBe(readFileSync(join(keys, 'issuer/gateway.key'), 'utf8').trim());
  const root = readFileSync(join(keys, 'issuer/root.key'), 'utf8').trim();
  expect(JSON.stringify([...secrets])).not.toContain(root);

  const again = await run();
  expect([again.code, again.err]).toEqual([0, expect.stringContaining('secrets: all are set')]);
  expect(cloudflare.workers.get('gw-test')).toMatchObject({ deployments: 2, secrets, vars: {} });
  expect(cloudflare.databases.size).toBe(1);
  expect([...cloudflare.buckets]).toEqual([['gw-test-files', 'eu']]);

  // Previous flags are remembered: --url and the others are not needed any more.
  const flags = ['--name', 'gw-test', '--keys', keys, '--production', '--release-keys', 'a-key,another'];
  const other = await deploy(cloudflare.env, ...flags, '--new-admin-key');
  expect(other.code).toBe(0);
  expect(other.err).toContain(`at ${cloudflare.url}`);
  expect(cloudflare.workers.get('gw-test')).toMatchObject({
    deployments: 3,
    vars: { REQUIRE_SIGNED_AGENT: 'on', RELEASE_KEYS: 'a-key,another', DEFAULT_TRUST: 'marked' },
  });
  expect(other.err).toMatch(/secrets: setting ADMIN_KEY_SHA256\n/);
  const next = readFileSync(join(keys, 'admin.key'), 'utf8').trim();
  expect([next, other.err]).toEqual([expect.stringMatching(KEY), expect.not.stringMatching(KEY)]);
  expect(next).not.toBe(key);
  expect(cloudflare.workers.get('gw-test')?.secrets).toEqual(new Map([...secrets, ['ADMIN_KEY_SHA256', sha256(next)]]));

  // Only the keys are left, and only the operator can read them.
  expect((await readdir(keys)).sort()).toEqual(['admin.key', 'installation.json', 'issuer', 'sent.json']);
  for (const name of ['admin.key', 'issuer/root.key', 'sent.json'])
    expect(statSync(join(keys, name)).mode & 0o777).toBe(0o600);
  expect((await readdir(ROOT)).filter((name) => name.endsWith('.deploy.toml'))).toEqual([]);
});

it('a Worker that was deployed elsewhere stays as it is until it is said what it is', async () => {
  const cloudflare = await Cloudflare.open();
  atEnd(() => cloudflare.close());
  const vars = { REQUIRE_SIGNED_AGENT: 'on' };
  const live = { secrets: new Map(), vars, databases: ['of-elsewhere'], migrationTag: 'v5', deployments: 7 };
  cloudflare.workers.set('gw-live', live);
  const keys = join(await temporaryDirectory(), 'keys');
  const run = (...args: string[]) => deploy(cloudflare.env, '--name', 'gw-live', '--keys', keys, ...args);

  const plain = await run();
  expect([plain.code, plain.err]).toEqual([2, expect.stringMatching(/--no-production and --database/)]);
  const half = await run('--no-production');
  expect([half.code, half.err]).toEqual([2, expect.stringMatching(/give --database/)]);
  // A refused run stores no flags, so the next run is refused, too.
  expect((await run()).code).toBe(2);
  const misspelt = await run('--no-production', '--database', 'misspelt');
  expect([misspelt.code, misspelt.err]).toEqual([2, expect.stringMatching(/no D1 database "misspelt"/)]);
  expect(cloudflare.asked.filter((asked) => !asked.startsWith('GET '))).toEqual([]);
  expect(cloudflare.workers.get('gw-live')).toEqual(live);
});

it.each([
  [['--production'], /--release-keys/],
  [['--name', 'Not a name'], /is not a name/],
  [['--frobnicate'], /frobnicate/],
])('%j is refused before Cloudflare hears of it', async (args, reason) => {
  const keys = await temporaryDirectory();
  const { code, err } = await deploy({ CLOUDFLARE_API_BASE_URL: 'http://127.0.0.1:9' }, '--keys', keys, ...args);
  expect([code, err]).toEqual([2, expect.stringMatching(reason)]);
});
