/** Data directories and backups of earlier versions (test/fixtures/data-directory), and of a future version. */
import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, expect, test } from 'vitest';
import { z } from 'zod';
import { newestLayout } from '../../../gateway/hosts/node/data/directory-version.ts';
import { PROTOCOL_VERSION } from '../../../shared/wire/protocol-constants.ts';
import { startAgent } from '../../support/agent.ts';
import { startEngine } from '../../support/engine.ts';
import { Gateway } from '../../support/gateway.ts';
import { patience } from '../../support/patience.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { chatBody, MODEL, openTestCluster } from '../../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE, ROOT } from '../../support/where.ts';

const FIXTURES = join(ROOT, 'test/fixtures/data-directory');
const VERSIONS = Array.from({ length: newestLayout() }, (_, n) => n + 1);
const expectedSchema = z.object({
  day: z.string(),
  key: z.string(),
  key_id: z.string(),
  user: z.string(),
  project: z.string(),
  token: z.string(),
  requests: z.number(),
  completion_tokens: z.number(),
});
const expectedOf = (version: number) =>
  expectedSchema.parse(JSON.parse(readFileSync(join(FIXTURES, `${version}.json`), 'utf8')));
/** Records must be kept for as long as this test may exist. */
const KEPT = { USAGE_KEPT_DAYS: '36500' };

afterEach(endAll);

const cli = (...args: string[]) =>
  spawnSync(NODE, [GATEWAY_MAIN, ...args], { encoding: 'utf8', timeout: patience(30_000) });
const totalsSchema = z.object({
  data: z.array(
    z.object({ requests: z.number(), completion_tokens: z.number(), mean_total_ms: z.number().positive().nullable() }),
  ),
});

async function unpacked(archive: string): Promise<string> {
  const data = await temporaryDirectory('otela-earlier');
  execFileSync('tar', ['-C', data, '-xzf', join(FIXTURES, `${archive}.tar.gz`)]);
  return data;
}

/** Reads every file of a directory. */
function everything(directory: string): Record<string, string> {
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return Object.fromEntries(files.sort().map((file) => [file, readFileSync(file, 'base64')]));
}

/** Columns of all tables in the databases of `data`, by class of object. */
function schemas(data: string): Record<string, string[]> {
  const columns: Record<string, Set<string>> = {};
  for (const file of readdirSync(data, { recursive: true, encoding: 'utf8' }).filter((one) =>
    one.endsWith('.sqlite'),
  )) {
    const of = file.split('/').slice(0, 2).join('/');
    const database = new DatabaseSync(join(data, file), { readOnly: true });
    const query = `SELECT m.name || '.' || p.name || ' ' || p.type || p."notnull" || p.pk AS described
      FROM sqlite_master m, pragma_table_info(m.name) p WHERE m.type = 'table'`;
    columns[of] ??= new Set();
    for (const { described } of database.prepare(query).all()) columns[of].add(String(described));
    database.close();
  }
  return Object.fromEntries(Object.entries(columns).map(([of, all]) => [of, [...all].sort()]));
}

test.each(VERSIONS)(
  'a directory of layout version %d serves: keys, people, totals, records and settings are there',
  async (version) => {
    const [data, expected] = [await unpacked(String(version)), expectedOf(version)];
    const doctor = cli('doctor', '--data', data, '--port', '0');
    expect([doctor.status, doctor.stdout]).toEqual([0, expect.stringContaining(`layout version ${version}`)]);
    const gateway = await Gateway.start({ data, env: KEPT });
    const models = await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${expected.key}` } });
    expect(models.status).toBe(200);
    expect(await gateway.admin('GET', `users/${expected.user}`)).toMatchObject({
      name: 'Ada',
      project_id: expected.project,
    });
    expect(await gateway.admin('GET', `keys/${expected.key_id}`)).toMatchObject({
      name: 'of old',
      user_id: expected.user,
      limits: { tokens_per_month: 1_000_000 },
    });
    const { day } = expected;
    const totals = totalsSchema.parse(
      await gateway.admin('GET', `usage?from=${day}&to=${day}&project=${expected.project}`),
    );
    expect(totals.data).toEqual([
      expect.objectContaining({
        requests: expected.requests,
        completion_tokens: expected.completion_tokens,
        mean_total_ms: expect.any(Number),
      }),
    ]);
    const trace = await fetch(`${gateway.url}/admin/trace?from=${day}T00:00:00Z&to=${day}T23:59:59Z`, {
      headers: { authorization: `Bearer ${gateway.adminKey}` },
    });
    expect((await trace.text()).trim().split('\n')).toHaveLength(expected.requests);
    expect(JSON.parse(readFileSync(join(data, 'layout.json'), 'utf8')).version).toBe(newestLayout());
    expect(cli('doctor', '--data', data, '--port', String(gateway.port)).status).toBe(0);
  },
);

test.each(VERSIONS)(
  'a join token of layout version %d admits an agent of now, a key is answered, and its use is added',
  async (version) => {
    const expected = expectedOf(version);
    const gateway = await Gateway.start({ data: await unpacked(String(version)), env: KEPT });
    const engine = await startEngine({ models: [MODEL] });
    atEnd(() => engine.close());
    await startAgent({ gateways: [gateway.url], token: expected.token, engineUrl: engine.url });
    await gateway.serving(1);
    const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${expected.key}`, 'content-type': 'application/json' },
      body: JSON.stringify(chatBody({ tokens: 3 })),
    });
    expect(answer.status).toBe(200);
    await answer.text();
    const of = `usage?from=${expected.day}&project=${expected.project}`;
    await eventually('one more', 20_000, async () => {
      const { data } = totalsSchema.parse(await gateway.admin('GET', of));
      const sum = data.reduce((all, one) => all + one.requests, 0);
      return sum === expected.requests + 1 ? true : undefined;
    });
  },
);

test('the tables of objects and alarms are those of the newest fixture: a change needs a layout version and a fixture', async () => {
  const cluster = await openTestCluster();
  const { id: project_id } = z
    .object({ id: z.string() })
    .parse(await cluster.gateway.admin('POST', 'projects', { name: 'p' }));
  const limits = { tokens_per_month: 1_000_000 };
  const key = z
    .object({ key: z.string() })
    .parse(await cluster.gateway.admin('POST', 'keys', { name: 'k', project_id, limits }));
  const headers = { authorization: `Bearer ${key.key}` };
  expect((await cluster.ask('/v1/chat/completions', chatBody({ tokens: 2 }), { headers })).status).toBe(200);
  await eventually('totals', 20_000, async () => {
    const { data } = totalsSchema.parse(await cluster.gateway.admin('GET', 'usage'));
    return data.length > 0 ? true : undefined;
  });
  await cluster.gateway.stop();
  const { 'accounts.sqlite': _now, ...now } = schemas(cluster.gateway.data);
  const { 'accounts.sqlite': _then, ...fixture } = schemas(await unpacked(String(newestLayout())));
  // An object without rows has no file, and no timeline was kept here.
  const { 'objects/OBSERVE': observed = fixture['objects/OBSERVE'], ...others } = now;
  expect({ ...others, 'objects/OBSERVE': observed }).toEqual(fixture);
});

test('accounts of an earlier schema are migrated by the start, and doctor says so before', async () => {
  // The accounts that version 0.1 kept on workerd have the first three of today's migrations.
  const old = await unpacked('workerd');
  const directory = join(old, 'd1/opentela-D1Store');
  const [name = ''] = readdirSync(directory).filter((one) => /^[0-9a-f]{64}\.sqlite$/.test(one));
  const data = await temporaryDirectory();
  await writeFile(join(data, 'lock'), '');
  await writeFile(join(data, 'layout.json'), '{"layout":"node","version":1}\n');
  const accounts = new DatabaseSync(join(directory, name));
  accounts.prepare('VACUUM INTO ?').run(join(data, 'accounts.sqlite'));
  accounts.close();
  const doctor = cli('doctor', '--data', data, '--port', '0');
  expect([doctor.status, doctor.stdout]).toEqual([
    0,
    expect.stringMatching(/schema: 0002_peers\.sql; the next start applies \d+ more/),
  ]);
  const gateway = await Gateway.start({ data, env: KEPT });
  expect(await gateway.admin('GET', 'keys')).toMatchObject({ data: [{ name: 'of old' }, { name: 'test' }] });
});

test('data of version 0.1 on workerd is refused by name and left as it is, a backup of it as well', async () => {
  const data = await unpacked('workerd');
  const before = everything(data);
  const out = join(await temporaryDirectory(), 'backup.tar.gz');
  for (const command of [
    ['serve', '--port', '0', '--data', data],
    ['backup', '--data', data, '--out', out],
    ['doctor', '--json', '--port', '0', '--data', data],
  ]) {
    const { status, stdout, stderr } = cli(...command);
    expect([command[0], status, stdout + stderr]).toEqual([
      command[0],
      1,
      expect.stringContaining(`${data} contains data of otela-gateway 0.1 on workerd (d1/, objects/opentela-…)`),
    ]);
  }
  // The check creates the lock file, which is empty.
  expect(everything(data)).toEqual({ ...before, [join(data, 'lock')]: '' });
  const old = await temporaryDirectory();
  await writeFile(
    join(old, 'manifest.json'),
    JSON.stringify({ otela_backup: 1, version: '0.1.0', made_at: '', migrations: [], files: [] }),
  );
  execFileSync('tar', ['-C', old, '-czf', join(old, 'backup.tar.gz'), 'manifest.json']);
  const into = join(await temporaryDirectory(), 'data');
  const restored = cli('restore', '--data', into, join(old, 'backup.tar.gz'));
  expect([restored.status, restored.stderr]).toEqual([1, expect.stringContaining('0.1 on workerd')]);
  expect(readdirSync(into)).toEqual([]);
});

test.each([
  ['of a newer version', '{"layout":"node","version":999}', /newer otela-gateway: its layout has version 999/],
  ['that is cut off', '{"layout":"no', /layout\.json is damaged.*otela-gateway restore/],
])('a layout %s is refused by serve, backup and doctor', async (_, text, reason) => {
  const data = await unpacked(String(newestLayout()));
  await writeFile(join(data, 'layout.json'), text);
  const before = everything(data);
  const out = join(await temporaryDirectory(), 'backup.tar.gz');
  for (const command of [
    ['serve', '--port', '0', '--data', data],
    ['backup', '--data', data, '--out', out],
    ['doctor', '--port', '0', '--data', data],
  ]) {
    const { status, stdout, stderr } = cli(...command);
    expect([command[0], status, stdout + stderr]).toEqual([command[0], 1, expect.stringMatching(reason)]);
  }
  expect(everything(data)).toEqual(before);
});

test('a first start that was cut off behind its lock is done again', async () => {
  const data = await temporaryDirectory();
  await mkdir(join(data, 'objects'));
  await writeFile(join(data, 'lock'), '');
  await writeFile(join(data, 'layout.json.new'), '{"lay');
  const gateway = await Gateway.start({ data });
  expect((await fetch(`${gateway.url}/readyz`)).status).toBe(200);
});

test('an agent that speaks an older protocol is told which of the two to upgrade', async () => {
  const gateway = await Gateway.start();
  const admit = (protocol: number) =>
    fetch(`${gateway.url}/agent/admit`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: 'Bearer otela-join-x' },
      body: JSON.stringify({ protocol, public_key: Buffer.alloc(32, 7).toString('base64url') }),
    });
  const older = await admit(PROTOCOL_VERSION - 1);
  expect([older.status, await older.text()]).toEqual([426, expect.stringContaining('upgrade the agent')]);
  const newer = await admit(PROTOCOL_VERSION + 1);
  expect([newer.status, await newer.text()]).toEqual([426, expect.stringContaining('upgrade the gateway')]);
});
