import { randomBytes } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { CONNECTIONS_PER_PEER_MAX } from '../../../agent/weights/server.ts';
import { atEnd, endAll, eventually } from '../../support/processes.ts';
import { Cluster, hubFolder, type Node, sha256 } from './cluster.ts';

afterEach(endAll);

async function dialled(to: Node, from: Node): Promise<Socket> {
  const socket = connect(to.port, '127.0.0.1').on('error', () => {});
  atEnd(() => void socket.destroy());
  socket.write(from.name.session);
  return socket;
}

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
