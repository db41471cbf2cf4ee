/** A gateway is copied while it works, killed, and continues elsewhere. */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { copyFile, mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { deserialize } from 'node:v8';
import { gunzipSync, gzipSync } from 'node:zlib';
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { newestLayout } from '../../../gateway/hosts/node/data/directory-version.ts';
import { Gateway } from '../../support/gateway.ts';
import { patience } from '../../support/patience.ts';
import { endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { chatBody, openTestCluster } from '../../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

/** `backup` and `restore` know only this host's data. */

afterEach(endAll);

const cli = (...args: string[]) =>
  spawnSync(NODE, [GATEWAY_MAIN, ...args], { encoding: 'utf8', timeout: patience(30_000) });
const tar = (...args: string[]) => spawnSync('tar', args, { encoding: 'utf8' });
const keyWorks = async (url: string, key: string) =>
  (await fetch(`${url}/v1/models`, { headers: { 'x-api-key': key } })).status;

async function backedUp(data: string): Promise<string> {
  const file = join(await temporaryDirectory(), 'backup.tar.gz');
  const { status, stderr } = cli('backup', '--data', data, '--out', file);
  expect([status, stderr]).toEqual([0, '']);
  return file;
}

/** The highest stream number that the nodes' objects have reserved. */
function streamsOf(data: string): number {
  const directory = join(data, 'objects/TUNNEL');
  const names = readdirSync(directory).filter((name) => name.endsWith('.sqlite'));
  return Math.max(
    ...names.map((name) => {
      const database = new DatabaseSync(join(directory, name), { readOnly: true });
      const [row] = database.prepare("SELECT value FROM _keys WHERE key = 'streams'").all();
      database.close();
      return row?.value instanceof Uint8Array ? Number(deserialize(row.value)) : 0;
    }),
  );
}

/** Number of requests in the usage totals: those in the objects of hours, and those in D1. */
async function counted(gateway: Gateway): Promise<number> {
  const { data } = z
    .object({ data: z.array(z.object({ requests: z.number() })) })
    .parse(await gateway.admin('GET', 'usage'));
  return data.reduce((sum, { requests }) => sum + requests, 0);
}

test('backed up under load, killed and restored elsewhere: keys, usage and nodes that were admitted go on', async () => {
  const cluster = await openTestCluster();
  const { gateway } = cluster;
  let loaded = true;
  let answered = 0;
  const load = Promise.all(
    Array.from({ length: 4 }, async () => {
      while (loaded) {
        const { status } = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 2 }));
        if (status === 200) answered++;
      }
    }),
  );
  const moreThan = (n: number) => eventually(`${n} answers`, 20_000, () => (answered > n ? true : undefined));
  await moreThan(50);
  // Requests that are in the totals before the copy must be in the copy.
  const before = await eventually('totals', 20_000, async () => (await counted(gateway)) || undefined);
  const file = await backedUp(gateway.data);
  // Uses stream numbers beyond those in the copy.
  await moreThan(answered + 50);
  loaded = false;
  await load;
  const [session] = (await gateway.serving(1)).map((node) => node.session);
  await gateway.kill9();
  const data = join(await temporaryDirectory(), 'elsewhere');
  const restored = cli('restore', '--data', data, file);
  expect([restored.status, restored.stderr]).toEqual([0, '']);
  for (const part of ['', 'issuer', 'objects', 'objects/TUNNEL'])
    expect(statSync(join(data, part)).mode & 0o777).toBe(0o700);
  for (const part of ['layout.json', 'admin.key', 'issuer/root.key', 'accounts.sqlite', 'lock'])
    expect(statSync(join(data, part)).mode & 0o777).toBe(0o600);
  const second = await Gateway.start({ data, port: gateway.port });
  expect(second.adminKey).toBe(gateway.adminKey);
  expect(await keyWorks(second.url, cluster.key)).toBe(200);
  expect((await second.serving(1, 30_000)).map((node) => node.session)).toEqual([session]);
  expect(await counted(second)).toBeGreaterThanOrEqual(before);
  // Each request is a new stream at an agent that has seen higher numbers, and each is on record once.
  const known = await counted(second);
  for (let n = 0; n < 20; n++)
    expect((await cluster.ask('/v1/chat/completions', chatBody({ tokens: 2 }))).status).toBe(200);
  // The restored gateway continues from the number that the restore wrote.
  expect(streamsOf(second.data)).toBeGreaterThan(2 ** 24);
  expect(streamsOf(gateway.data)).toBeLessThan(2 ** 24);
  await eventually('twenty more', 20_000, async () => ((await counted(second)) >= known + 20 ? true : undefined));
});

test('any tar lists it, and its manifest names every file with its sum', async () => {
  const gateway = await Gateway.start();
  await gateway.createKey('kept');
  const file = await backedUp(gateway.data);
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const names = tar('-tzf', file).stdout.trim().split('\n');
  expect(names[0]).toBe('manifest.json');
  expect(names).toContain('admin.key');
  expect(names).toContain('issuer/root.key');
  expect(names.join(' ')).not.toMatch(/-wal|-shm|lock|probe/);
  const manifest = JSON.parse(tar('-xzOf', file, 'manifest.json').stdout);
  expect(manifest.files.map(({ path }: { path: string }) => path)).toEqual(names.slice(1));
  expect(manifest).toMatchObject({
    otela_backup: 2,
    layout: newestLayout(),
    version: expect.stringMatching(/^\d/),
    made_at: expect.any(String),
  });
  expect(manifest.migrations.at(-1)).toMatch(/^\d{4}_\w+\.sql$/);
  // No partial file is left next to it, and a second backup does not replace it.
  expect(await readdir(join(file, '..'))).toEqual(['backup.tar.gz']);
  const again = cli('backup', '--data', gateway.data, '--out', file);
  expect([again.status, again.stderr]).toEqual([1, expect.stringContaining('exists')]);
  // A copy taken while nothing runs is equally good.
  await gateway.stop();
  expect(await backedUp(gateway.data)).toMatch(/backup/);
});

test('a restore goes into an empty directory alone, and never into one that a gateway uses', async () => {
  const gateway = await Gateway.start();
  const file = await backedUp(gateway.data);
  const running = cli('restore', '--data', gateway.data, file);
  expect([running.status, running.stderr]).toEqual([1, expect.stringContaining('Another gateway uses')]);
  await gateway.stop();
  const full = cli('restore', '--data', gateway.data, file);
  expect([full.status, full.stderr]).toEqual([1, expect.stringContaining('not empty')]);
  const home = await temporaryDirectory();
  await writeFile(join(home, 'thesis.tex'), 'x');
  expect(cli('restore', '--data', home, file).status).toBe(1);
  expect(await readdir(home)).toEqual(['thesis.tex']);
  // An interrupted restore starts again.
  const half = await temporaryDirectory();
  await mkdir(join(half, 'restoring/objects'), { recursive: true });
  await copyFile(join(gateway.data, 'admin.key'), join(half, 'admin.key'));
  expect(cli('restore', '--data', half, file).status).toBe(0);
  expect((await readdir(half)).sort()).toEqual([
    'accounts.sqlite',
    'admin.key',
    'issuer',
    'layout.json',
    'lock',
    'objects',
  ]);
});

test.each([
  [
    'with one bit turned',
    (plain: Buffer) => turned(plain, Math.floor(plain.length / 2)),
    /differs from the manifest|damaged/,
  ],
  ['cut off', (plain: Buffer) => plain.subarray(0, plain.length - 4096), /cut off|missing/],
  ['that is something else', () => Buffer.from('hello'), /cut off|not a backup/],
])('a backup %s is refused, and nothing is left behind', async (_, spoil, reason) => {
  const gateway = await Gateway.start();
  await gateway.stop();
  const file = await backedUp(gateway.data);
  writeFileSync(file, gzipSync(spoil(gunzipSync(readFileSync(file)))));
  const data = join(await temporaryDirectory(), 'data');
  const { status, stderr } = cli('restore', '--data', data, file);
  expect([status, stderr]).toEqual([1, expect.stringMatching(reason)]);
  expect(stderr).not.toMatch(/\n {4}at /);
  expect(await readdir(data)).toEqual([]);
});

function turned(plain: Buffer, at: number): Buffer {
  const other = Buffer.from(plain);
  other[at] = (other[at] ?? 0) ^ 1;
  return other;
}

test('an archive cannot write outside the directory, or bring what a gateway has not', async () => {
  const evil = await temporaryDirectory();
  const files = [{ path: '../escaped', bytes: 0, sha256: '0'.repeat(64) }];
  const manifest = { otela_backup: 2, version: '0', made_at: '', layout: 1, migrations: [], files };
  await writeFile(join(evil, 'manifest.json'), JSON.stringify(manifest));
  tar('-C', evil, '-czf', join(evil, 'evil.tar.gz'), 'manifest.json');
  const { status, stderr } = cli('restore', '--data', join(evil, 'data'), join(evil, 'evil.tar.gz'));
  expect([status, stderr]).toEqual([1, expect.stringContaining('manifest')]);
});

test('a directory or a backup with a schema of a newer otela-gateway is refused before anything is written', async () => {
  const gateway = await Gateway.start();
  await gateway.stop();
  const database = new DatabaseSync(join(gateway.data, 'accounts.sqlite'));
  database.exec("INSERT INTO d1_migrations (name) VALUES ('9999_tomorrow.sql')");
  database.close();
  const before = await everything(gateway.data);
  const served = cli('serve', '--port', '0', '--data', gateway.data);
  expect([served.status, served.stderr]).toEqual([1, expect.stringMatching(/newer otela-gateway.*9999_tomorrow\.sql/)]);
  expect(await everything(gateway.data)).toEqual(before);
  const file = await backedUp(gateway.data);
  const data = join(await temporaryDirectory(), 'data');
  const restored = cli('restore', '--data', data, file);
  expect([restored.status, restored.stderr]).toEqual([1, expect.stringContaining('newer otela-gateway')]);
  expect(await readdir(data)).toEqual([]);
  const doctor = cli('doctor', '--data', gateway.data, '--port', '0');
  expect([doctor.status, doctor.stdout]).toEqual([1, expect.stringMatching(/^BAD {2}schema: .*9999_tomorrow/m)]);
});

/** Reads every file of a directory. */
async function everything(data: string): Promise<Record<string, string>> {
  const entries = await readdir(data, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return Object.fromEntries(files.sort().map((file) => [file, readFileSync(file, 'base64')]));
}
