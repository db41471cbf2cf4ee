/** A gateway that starts on a disk without room, or in a directory that it may not write to. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { type FileSystem, mountFileSystem } from '../../support/file-system.ts';
import { chatBody, type House, openHouse } from '../../support/house.ts';
import { patience } from '../../support/patience.ts';
import { endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { GATEWAY_MAIN, NODE } from '../../support/where.ts';

const SIZE_MIB = 64;

afterEach(endAll);

const cli = (...args: string[]) =>
  spawnSync(NODE, [GATEWAY_MAIN, ...args], { encoding: 'utf8', timeout: patience(20_000) });
const totalsSchema = z.object({ data: z.array(z.object({ requests: z.number() })) });
const requests = async ({ gateway }: House) =>
  totalsSchema.parse(await gateway.admin('GET', 'usage')).data.reduce((sum, row) => sum + row.requests, 0);
const totals = (house: House, wanted: number) =>
  eventually(`${wanted} requests in the totals`, 20_000, async () => {
    const found = await requests(house);
    return found >= wanted ? found : undefined;
  });

async function ask(house: House, count: number): Promise<number[]> {
  const statuses: number[] = [];
  for (let n = 0; n < count; n++) {
    const response = await house.ask('/v1/chat/completions', chatBody({ tokens: 2 }));
    await response.text();
    statuses.push(response.status);
  }
  return statuses;
}

const ok = (count: number) => new Array<number>(count).fill(200);
const readyStatus = async (house: House) => (await fetch(`${house.gateway.url}/readyz`)).status;

describe.each(['memory', 'disk'] as const)('on a full file system (%s)', (kind) => {
  it.for([
    ['was stopped', (house: House) => house.gateway.stop()],
    ['was killed', (house: House) => house.gateway.kill9()],
  ] as const)(
    'a gateway that %s starts, serves the keys that it knows, and writes when there is room',
    async ([, end], test) => {
      const disk = mountFileSystem({ sizeMiB: SIZE_MIB, kind });
      if (typeof disk === 'string') return test.skip(disk);
      const house = await openHouse({ gateway: { data: join(disk.path, 'data') } });
      expect(await ask(house, 5)).toEqual(ok(5));
      await totals(house, 5);
      await end(house);
      disk.fill(0);
      await house.gateway.restart();
      expect(house.gateway.process.output).toMatch(/storage cannot be written since .* has 0\.\d MiB left/);
      await house.gateway.serving(1, 20_000);
      expect(await ask(house, 10)).toEqual(ok(10));
      expect(await readyStatus(house)).toBe(503);
      disk.empty();
      await eventually('ready', 10_000, async () => ((await readyStatus(house)) === 200 ? true : undefined));
      expect(await totals(house, 15)).toBe(15);
      await backsUp(house, disk);
    },
  );
});

/** Its files can be read by another process again. */
async function backsUp({ gateway }: House, disk: FileSystem): Promise<void> {
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
  const house = await openHouse({ gateway: { data: join(disk.path, 'data') } });
  expect(await ask(house, 2)).toEqual(ok(2));
  await totals(house, 2);
  await house.gateway.stop();
  spawnSync('mount', ['-o', 'remount,ro', disk.path]);
  const { status, stdout, stderr } = cli('serve', '--port', '0', '--data', house.gateway.data);
  expect([status, stdout]).toEqual([1, '']);
  expect(stderr.trim().split('\n')).toHaveLength(1);
  expect(stderr).toContain(`${house.gateway.data} cannot be`);
  expect(stderr).toMatch(/read-only/i);
  spawnSync('mount', ['-o', 'remount,rw', disk.path]);
  await house.gateway.restart();
  await house.gateway.serving(1, 20_000);
  expect(await ask(house, 2)).toEqual(ok(2));
  expect(await totals(house, 4)).toBe(4);
});

it('killed under load, nothing that was acknowledged is lost, and nothing is counted twice', async () => {
  const house = await openHouse({ gateway: { data: join(await temporaryDirectory(), 'data') } });
  const [ASKERS, KILLS] = [8, 3];
  const keys: string[] = [];
  let [loaded, answered] = [true, 0];
  const askers = Array.from({ length: ASKERS }, async () => {
    while (loaded) {
      const status = await house
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
      await house.gateway.createKey('made under load').then(
        (key) => keys.push(key),
        () => {},
      );
  });
  for (let kills = 0; kills < KILLS; kills++) {
    const before = [answered, keys.length];
    await eventually('load', 20_000, () =>
      answered > (before[0] ?? 0) + 60 && keys.length > (before[1] ?? 0) + 5 ? true : undefined,
    );
    await house.gateway.kill9();
    await house.gateway.restart();
    await house.gateway.serving(1, 20_000);
  }
  loaded = false;
  await Promise.all([...askers, ...makers]);
  for (const key of keys) {
    const { status } = await fetch(`${house.gateway.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
    expect(status).toBe(200);
  }
  // What a kill broke off may have been recorded too, by the agent: one request of each asker at the most.
  const counted = await totals(house, answered);
  expect(counted).toBeLessThanOrEqual(answered + ASKERS * KILLS);
});
