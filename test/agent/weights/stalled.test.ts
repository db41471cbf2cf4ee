import { randomBytes } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, expect, it, vi } from 'vitest';
import { openSource } from '../../../agent/weights/sources/open-source.ts';
import { CONNECTIONS_PER_PEER_MAX } from '../../../agent/weights/weights-server.ts';
import { PeerBlocklist } from '../../../shared/weights/peer-blocklist.ts';
import { promise } from '../../support/patience.ts';
import { atEnd, endAll, eventually } from '../../support/processes.ts';
import { Cluster, dialled, hubFolder, type Node, PIECE, QUICK, sha256, way } from './cluster.ts';

afterEach(endAll);

it('a node that asks for blobs and reads nothing keeps no place', async () => {
  const cluster = new Cluster();
  const bytes = randomBytes(16 * 1024 * 1024);
  const first = await cluster.add({ weights: { stallMs: 300 } });
  await first.weights.pull(`dir:${await hubFolder({ a: bytes })}`);
  const deaf = await cluster.add();
  for (let at = 0; at < 2; at++) {
    const socket = await dialled(first, deaf);
    socket.pause();
    const path = `/v1/blobs/${sha256(bytes)}?size=${bytes.length}&piece=${64 * 1024}&from=0`;
    socket.write(`GET ${path} HTTP/1.1\r\nhost: peer\r\n\r\n`);
  }
  await eventually('both places are taken', 5_000, () => first.weights.uploads.active === 2 || undefined);
  await eventually('and free again', 5_000, () => first.weights.uploads.active === 0 || undefined);
});

/** Reads `bytesPerS` bytes of a blob per second, in ten steps each. */
async function slowReader(of: Node, from: Node, bytes: Buffer, bytesPerS: number): Promise<Socket> {
  const socket = (await dialled(of, from)).pause();
  socket.write(
    `GET /v1/blobs/${sha256(bytes)}?size=${bytes.length}&piece=${PIECE}&from=0 HTTP/1.1\r\nhost: peer\r\n\r\n`,
  );
  const timer = setInterval(() => void socket.read(Math.min(bytesPerS / 10, socket.readableLength)), 100);
  atEnd(() => clearInterval(timer));
  return socket;
}

const READERS = { leastBytesPerS: 64 * 1024, patienceMs: 500, throttledMax: 2, turnMs: 60_000 };

it('readers of 5 KB/s that have all places lose them to one that waits, and go on beside it', async () => {
  const cluster = new Cluster();
  const bytes = randomBytes(16 * 1024 * 1024);
  const folder = await hubFolder({ a: bytes });
  const first = await cluster.add({ weights: { readers: READERS } });
  await first.weights.pull(`dir:${folder}`);
  const slow = await cluster.of(4);
  const sockets = await Promise.all(slow.slice(0, 2).map((node) => slowReader(first, node, bytes, 5_000)));
  await eventually('both places are taken', 5_000, () => first.weights.uploads.active === 2 || undefined);
  await rm(folder, { recursive: true });
  const honest = await cluster.add();
  const { status } = await honest.weights.pull(`dir:${folder}`);
  expect(status).toMatchObject({ from_source: 0, from_peers: bytes.length });
  // The sender learns a moment later than the reader that the blob is complete.
  const { uploads } = first.weights;
  await expect.poll(() => uploads).toMatchObject({ active: 1, throttled: 1, peak: 2 });
  expect(sockets.map(({ destroyed }) => destroyed)).toEqual([false, false]);
  // Two of them continue without a slot; the next reader that is too slow is cut off.
  for (const node of slow.slice(2)) await slowReader(first, node, bytes, 5_000);
  await eventually('four are served', 5_000, () => uploads.active + uploads.throttled === 4 || undefined);
  // The next node must not get it from the honest one.
  cluster.remove(honest);
  await (await cluster.add()).weights.pull(`dir:${folder}`);
  await expect.poll(() => uploads).toMatchObject({ active: 1, throttled: 2, peak: 2 });
});

it('readers that are just fast enough share the places with one that waits, in turns', async () => {
  const cluster = new Cluster();
  const bytes = randomBytes(32 * 1024 * 1024);
  const folder = await hubFolder({ a: bytes });
  const first = await cluster.add({ weights: { readers: { ...READERS, patienceMs: 10_000, turnMs: 300 } } });
  await first.weights.pull(`dir:${folder}`);
  const slow = await cluster.of(2);
  const sockets = await Promise.all(slow.map((node) => slowReader(first, node, bytes, 400_000)));
  const { uploads } = first.weights;
  await eventually('both places are taken', 5_000, () => uploads.active === 2 || undefined);
  await rm(folder, { recursive: true });
  const honest = await cluster.add();
  // They would take more than a minute.
  const { status } = await honest.weights.pull(`dir:${folder}`);
  expect(status).toMatchObject({ from_source: 0, from_peers: bytes.length });
  expect(uploads.peak).toBe(2);
  expect(sockets.map(({ destroyed }) => destroyed)).toEqual([false, false]);
});

it('a node whose only sender is behind a slow link leaves it, comes back, and has the blob at last', async () => {
  // Otherwise the blocked sender would return only after 15 s.
  vi.spyOn(PeerBlocklist.prototype, 'blocked').mockReturnValue([]);
  atEnd(() => void vi.restoreAllMocks());
  const cluster = new Cluster();
  const bytes = randomBytes(PIECE + PIECE / 2);
  const folder = await hubFolder({ a: bytes });
  const [first, second] = [await cluster.add(), await cluster.add({ weights: { limits: QUICK } })];
  await first.weights.pull(`dir:${folder}`);
  await rm(folder, { recursive: true });
  cluster.line = (_from, _to, port) =>
    way(port, async (chunk, near) => {
      // A third of the rate that `QUICK` calls slow.
      for (let at = 0; at < chunk.length && !near.destroyed; at += 1000) {
        near.write(chunk.subarray(at, at + 1000));
        if (chunk.length > 1000) await delay(45);
      }
    });
  const { status } = await second.weights.pull(`dir:${folder}`);
  expect(status).toMatchObject({ state: 'done', from_source: 0 });
  expect(second.log.join()).toContain('too slow');
});

it('a node whose source is slow for it alone takes the rest from one that was quicker', async () => {
  const cluster = new Cluster();
  const bytes = randomBytes(96 * PIECE);
  const source = `dir:${await hubFolder({ a: bytes })}`;
  const slowly: typeof openSource = (one, env) => {
    const real = openSource(one, env);
    return {
      list: (signal) => real.list(signal),
      async *read(...args) {
        for await (const chunk of real.read(...args))
          for (let at = 0; at < chunk.length; at += 1000) {
            yield chunk.subarray(at, at + 1000);
            // In step with QUICK: no piece may end within its time.
            await delay(promise(100));
          }
      },
    };
  };
  const first = await cluster.add({ weights: { openSource: slowly, limits: QUICK } });
  const pulled = first.weights.pull(source);
  await eventually('it reads', 5_000, () => first.weights.status().some((one) => one.from_source > 0) || undefined);
  const second = await cluster.add({ weights: { limits: QUICK } });
  await second.weights.pull(source);
  // From its source it would take ten minutes, longer than a slow machine needs to start the second node.
  const { path, status } = await pulled;
  expect((await readFile(join(path, 'a'))).equals(bytes)).toBe(true);
  expect(status.from_peers).toBeGreaterThan(48 * PIECE);
});

it('a node has so many connections and no more: the places are for all', async () => {
  const cluster = new Cluster();
  const [first, greedy, other] = await cluster.of(3);
  if (first === undefined || greedy === undefined || other === undefined) return expect.unreachable();
  const ended: Socket[] = [];
  for (let at = 0; at < CONNECTIONS_PER_PEER_MAX + 3; at++) {
    const socket = await dialled(first, greedy);
    socket.on('close', () => ended.push(socket)).resume();
  }
  await eventually('three are closed', 5_000, () => ended.length === 3 || undefined);
  expect(await other.weights.parts.client.held(first.name.session, AbortSignal.timeout(5_000))).toEqual([]);
  expect(ended.length).toBe(3);
});
