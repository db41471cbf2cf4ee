/**
 * If its data directory is not writable, a gateway serves requests, reports the fault, loses no record and recovers
 * without help.
 */
import { renameSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { z } from 'zod';
import { abortFileSystem, mountFileSystem } from '../../support/file-system.ts';
import { promise } from '../../support/patience.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { chatBody, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

afterEach(endAll);

const MIB = 1024 * 1024;
const SIZE_MIB = 64;

const readySchema = z.object({
  status: z.string(),
  checks: z.object({ storage: z.boolean() }),
  storage: z.object({ failure: z.string().nullable(), held_records: z.number(), lost_records: z.number() }),
});

async function ready(cluster: TestCluster) {
  const response = await fetch(`${cluster.gateway.url}/readyz`);
  return { code: response.status, ...readySchema.parse(await response.json()) };
}

const until = (cluster: TestCluster, what: string, code: number) =>
  eventually(what, 10_000, async () => {
    const now = await ready(cluster);
    return now.code === code ? now : undefined;
  });

/** Sends `count` requests, some concurrently. @returns their statuses, and how long the slowest took */
async function ask(cluster: TestCluster, count: number): Promise<{ statuses: number[]; slowestMs: number }> {
  const statuses: number[] = [];
  let slowestMs = 0;
  const one = async () => {
    const from = performance.now();
    const response = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 2 }));
    await response.text();
    statuses.push(response.status);
    slowestMs = Math.max(slowestMs, performance.now() - from);
  };
  for (let asked = 0; asked < count; asked += 10) await Promise.all(Array.from({ length: 10 }, one));
  return { statuses, slowestMs };
}

const totalsSchema = z.object({ data: z.array(z.object({ requests: z.number(), failed: z.number() })) });

const totals = (cluster: TestCluster, requests: number) =>
  eventually(`${requests} requests in the totals`, 20_000, async () => {
    const { data } = totalsSchema.parse(await cluster.gateway.admin('GET', 'usage'));
    return (data[0]?.requests ?? 0) >= requests ? data : undefined;
  });

/** Asserts the behavior while no data can be written, whatever the reason. */
async function servesAndTells(cluster: TestCluster, reason: RegExp): Promise<void> {
  const { statuses, slowestMs } = await ask(cluster, 40);
  expect(new Set(statuses)).toEqual(new Set([200]));
  expect(slowestMs).toBeLessThan(promise(8_000)); // it was 12 s and more, and then 503
  const told = await ready(cluster);
  expect(told).toMatchObject({ code: 503, status: 'unavailable', checks: { storage: false } });
  expect(told.storage.failure).toMatch(reason);
  expect(told.storage.lost_records).toBe(0);
  await eventually('records to wait', 5_000, async () => {
    const { storage } = await ready(cluster);
    return storage.held_records >= 40 ? true : undefined;
  });
  const headers = { authorization: `Bearer ${cluster.gateway.adminKey}` };
  const page = await (await fetch(`${cluster.gateway.url}/metrics`, { headers })).text();
  expect(page).toMatch(/^otela_storage_failing 1$/m);
  expect(page).toMatch(/^otela_usage_records_held \d\d/m);
  const lines = cluster.gateway.process.output
    .split('\n')
    .filter((line) => line.includes('storage has not been writable'));
  expect(lines).toHaveLength(1);
  expect(lines[0]).toMatch(reason);
  // A request that needs a write is refused, with the reason.
  await expect(cluster.gateway.admin('POST', 'keys', { name: 'late' })).rejects.toThrow(/cannot store changes/);
  const stranger = await cluster.ask('/v1/models', undefined, {
    headers: { authorization: `Bearer sk-otela-${'x'.repeat(43)}` },
  });
  expect(stranger.status).toBe(401);
  expect(cluster.agents[0]?.output).not.toContain('connection lost');
}

it('on a full disk requests are served, records wait in memory, and are written when there is space again', async (test) => {
  const disk = mountFileSystem({ sizeMiB: SIZE_MIB });
  if (typeof disk === 'string') return test.skip(disk);
  const cluster = await openTestCluster({ gateway: { data: join(disk.path, 'data') } });
  await ask(cluster, 10);
  disk.fill(4 * MIB);
  await until(cluster, 'the gateway to notice', 503);
  disk.fill(0);
  await servesAndTells(cluster, /has \d+\.\d MiB left/);
  disk.empty();
  expect((await until(cluster, 'the gateway to recover', 200)).storage.failure).toBeNull();
  expect(cluster.gateway.process.output).toMatch(/storage is writable again after \d+ s/);
  await ask(cluster, 10);
  expect(await totals(cluster, 60)).toEqual([{ requests: 60, failed: 0 }]);
});

it('records that waited in a gateway that was killed are said again by the agents', async (test) => {
  const disk = mountFileSystem({ sizeMiB: SIZE_MIB });
  if (typeof disk === 'string') return test.skip(disk);
  const cluster = await openTestCluster({ gateway: { data: join(disk.path, 'data') } });
  await ask(cluster, 10);
  await totals(cluster, 10);
  disk.fill(4 * MIB);
  await until(cluster, 'the gateway to notice', 503);
  await ask(cluster, 20);
  await cluster.gateway.kill9();
  disk.empty();
  await cluster.gateway.restart();
  await cluster.gateway.serving(1, 20_000);
  expect(await totals(cluster, 30)).toEqual([{ requests: 30, failed: 0 }]);
});

it('on a file system that became read-only requests are served, and it is told', async (test) => {
  const disk = mountFileSystem({ sizeMiB: SIZE_MIB, kind: 'disk' });
  if (typeof disk === 'string') return test.skip(disk);
  const cluster = await openTestCluster({ gateway: { data: join(disk.path, 'data') } });
  await ask(cluster, 10);
  await totals(cluster, 10); // no write is pending
  abortFileSystem(disk);
  await until(cluster, 'the gateway to notice', 503);
  await servesAndTells(cluster, /read-only file system/);
});

it('without its data directory requests are served, and it recovers when that is back', async (test) => {
  const disk = mountFileSystem({ sizeMiB: SIZE_MIB });
  if (typeof disk === 'string') return test.skip(disk);
  const data = join(disk.path, 'data');
  const cluster = await openTestCluster({ gateway: { data } });
  await ask(cluster, 10);
  renameSync(data, `${data}.away`);
  await until(cluster, 'the gateway to notice', 503);
  await servesAndTells(cluster, /no such file or directory/);
  renameSync(`${data}.away`, data);
  await until(cluster, 'the gateway to recover', 200);
  expect(await totals(cluster, 50)).toEqual([{ requests: 50, failed: 0 }]);
});
