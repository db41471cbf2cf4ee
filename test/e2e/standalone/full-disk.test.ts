/** A gateway that starts on a full disk, or in a directory that it may not write to. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type FileSystem, mountFileSystem } from '../../support/file-system.ts';
import { patience } from '../../support/patience.ts';
import { endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { chatBody, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

const SIZE_MIB = 64;

afterEach(endAll);

const cli = (...args: string[]) =>
  spawnSync(NODE, [GATEWAY_MAIN, ...args], { encoding: 'utf8', timeout: patience(20_000) });
const totalsSchema = z.object({ data: z.array(z.object({ requests: z.number() })) });
const requests = async ({ gateway }: TestCluster) =>
  totalsSchema.parse(await gateway.admin('GET', 'usage')).data.reduce((sum, row) => sum + row.requests, 0);
const totals = (cluster: TestCluster, wanted: number) =>
  eventually(`${wanted} requests in the totals`, 20_000, async () => {
    const found = await requests(cluster);
    return found >= wanted ? found : undefined;
  });

async function ask(cluster: TestCluster, count: number): Promise<number[]> {
  const statuses: number[] = [];
  for (let n = 0; n < count; n++) {
    const response = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 2 }));
    await response.text();
    statuses.push(response.status);
  }
  return statuses;
}

const ok = (count: number) => new Array<number>(count).fill(200);
const readyStatus = async (cluster: TestCluster) => (await fetch(`${cluster.gateway.url}/readyz`)).status;

describe.each(['memory', 'disk'] as const)('on a full file system (%s)', (kind) => {
  it.for([
    ['was stopped', (cluster: TestCluster) => cluster.gateway.stop()],
    ['was killed', (cluster: TestCluster) => cluster.gateway.kill9()],
  ] as const)(
    'a gateway that %s starts, serves the keys that it knows, and writes when there is room',
    async ([, end], test) => {
      const disk = mountFileSystem({ sizeMiB: SIZE_MIB, kind });
      if (typeof disk === 'string') return test.skip(disk);
      const cluster = await openTestCluster({ gateway: { data: join(disk.path, 'data') } });
      expect(await ask(cluster, 5)).toEqual(ok(5));
      await totals(cluster, 5);
      await end(cluster);
      disk.fill(0);
      await cluster.gateway.restart();
      expect(cluster.gateway.process.output).toMatch(/storage has not been writable since .* has 0\.\d MiB left/);
      await cluster.gateway.serving(1, 20_000);
      expect(await ask(cluster, 10)).toEqual(ok(10));
      expect(await readyStatus(cluster)).toBe(503);
      disk.empty();
      await eventually('ready', 10_000, async () => ((await readyStatus(cluster)) === 200 ? true : undefined));
      expect(await totals(cluster, 15)).toBe(15);
      await backsUp(cluster, disk);
    },
  );
});

/** Asserts that another process can read its files again. */
async function backsUp({ gateway }: TestCluster, disk: FileSystem): Promise<void> {
  const { status, stderr } = cli('backup', '--data', gateway.data, '--out', join(disk.path, 'backup.tar.gz'));
  expect([status, stderr]).toEqual([0, '']);
}

it('a first start on a full disk ends with 1 and says in one line which directory has no room', async (test) => {
  const disk = mountFileSystem({ sizeMiB: SIZE_MIB, kind: 'disk' });
  if (typeof disk === 'string') return test.skip(disk);
  const data = join(disk.path, 'data');
  mkdirSync(data);
  disk.fill(0);
  const { status, stdout, stderr } = cli('serve', '--port', '0', '--data', data);
  expect([status, stdout]).toEqual([1, '']);
  expect(stderr.trim().split('\n')).toHaveLength(1);
  expect(stderr).toMatch(new RegExp(`${data} cannot be (written|locked): .*(no space left|disk is full)`));
  disk.empty();
  expect(existsSync(join(data, 'accounts.sqlite'))).toBe(false);
});

it('a directory that may not be written ends a start with 1 and one line that names it; afterwards it starts', async (test) => {
  const disk = mountFileSystem({ sizeMiB: SIZE_MIB });
  if (typeof disk === 'string') return test.skip(disk);
  const cluster = await openTestCluster({ gateway: { data: join(disk.path, 'data') } });
  expect(await ask(cluster, 2)).toEqual(ok(2));
  await totals(cluster, 2);
  await cluster.gateway.stop();
  spawnSync('mount', ['-o', 'remount,ro', disk.path]);
  const { status, stdout, stderr } = cli('serve', '--port', '0', '--data', cluster.gateway.data);
  expect([status, stdout]).toEqual([1, '']);
  expect(stderr.trim().split('\n')).toHaveLength(1);
  expect(stderr).toContain(`${cluster.gateway.data} cannot be`);
  expect(stderr).toMatch(/read-only/i);
  spawnSync('mount', ['-o', 'remount,rw', disk.path]);
  await cluster.gateway.restart();
  await cluster.gateway.serving(1, 20_000);
  expect(await ask(cluster, 2)).toEqual(ok(2));
  expect(await totals(cluster, 4)).toBe(4);
});

it('killed under load, nothing that was acknowledged is lost, and nothing is counted twice', async () => {
  const cluster = await openTestCluster({ gateway: { data: join(await temporaryDirectory(), 'data') } });
  const [ASKERS, KILLS] = [8, 3];
  const keys: string[] = [];
  let [loaded, answered] = [true, 0];
  const askers = Array.from({ length: ASKERS }, async () => {
    while (loaded) {
      const status = await cluster
        .ask('/v1/chat/completions', chatBody({ tokens: 2 }))
        .then(async (response) => {
          await response.text();
          return response.status;
        })
        .catch(() => undefined);
      if (status === 200) answered++;
    }
  });
  const makers = Array.from({ length: 2 }, async () => {
    while (loaded)
      await cluster.gateway.createKey('made under load').then(
        (key) => keys.push(key),
        () => {},
      );
  });
  for (let kills = 0; kills < KILLS; kills++) {
    const before = [answered, keys.length];
    await eventually('load', 20_000, () =>
      answered > (before[0] ?? 0) + 60 && keys.length > (before[1] ?? 0) + 5 ? true : undefined,
    );
    await cluster.gateway.kill9();
    await cluster.gateway.restart();
    await cluster.gateway.serving(1, 20_000);
  }
  loaded = false;
  await Promise.all([...askers, ...makers]);
  for (const key of keys) {
    const { status } = await fetch(`${cluster.gateway.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
    expect(status).toBe(200);
  }
  // The agent may also have reported requests that a kill interrupted: at most one request of each client per kill.
  const counted = await totals(cluster, answered);
  expect(counted).toBeLessThanOrEqual(answered + ASKERS * KILLS);
});
