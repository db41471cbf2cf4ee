/** Readers that have been admitted and break the rules. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { afterEach, expect, it } from 'vitest';
import { MeshPeers } from '../../../agent/weights/mesh-peers.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { village } from '../mesh/village.ts';
import { Cluster, dialled, hubFolder, PIECE, plainFolder, sha256 } from './cluster.ts';

afterEach(endAll);

const BYTES = randomBytes(3 * PIECE);
const get = (path: string) => `GET ${path} HTTP/1.1\r\nhost: peer\r\n\r\n`;
const blobPath = (bytes: Buffer) => `/v1/blobs/${sha256(bytes)}?size=${bytes.length}&piece=${PIECE}&from=0`;

it('a node that was evicted gets nothing more over the connections that it has, and no new ones', async () => {
  const cluster = new Cluster();
  const [first, evicted] = [await cluster.add(), await cluster.add()];
  await first.weights.pull(`dir:${await hubFolder({ a: BYTES })}`);
  const socket = await dialled(first, evicted);
  socket.write(get('/v1/held'));
  await once(socket, 'data');
  cluster.remove(evicted);
  const came = { bytes: 0 };
  socket.on('data', (part) => {
    came.bytes += part.length;
  });
  socket.write(get(blobPath(BYTES)));
  await once(socket, 'close');
  expect(came.bytes).toBe(0);
});

it('a ticket of an evicted session gives no weights, whatever the mesh reports', async () => {
  const { issuer, join } = village();
  const [own, other] = [await join(), await join()];
  const peers = new MeshPeers(() => undefined);
  const ticket = await eventually('they meet', 10_000, () => own.mesh.replica.get(other.session)?.ticket.bytes);
  expect(peers.admits({ ticket })).toBe(false);
  peers.join(own.mesh, { session: own.session, provider: 'lab', cluster: 'alps' });
  expect(peers.admits({ ticket })).toBe(true);
  own.mesh.publish(issuer.eviction(other.session));
  expect(peers.admits({ ticket })).toBe(false);
  peers.close();
});

it('requests in a row on one connection, before an answer, end it: they would all run at once', async () => {
  const cluster = new Cluster();
  const [first, greedy] = [await cluster.add(), await cluster.add()];
  await first.weights.pull(`dir:${await hubFolder({ a: BYTES })}`);
  const { store } = first.weights;
  const read = store.read.bind(store);
  let reads = 0;
  store.read = (file) => {
    reads++;
    return read(file);
  };
  const socket = await dialled(first, greedy);
  socket.resume().write(get(blobPath(BYTES)).repeat(200));
  await once(socket, 'close');
  expect(reads).toBeLessThanOrEqual(1);
});

it('a node that asks for blobs which never come keeps no place from others', async () => {
  const cluster = new Cluster();
  const [first, greedy] = [await cluster.add(), await cluster.add()];
  // A pull is running, so the requested blobs may still arrive.
  const never = new Promise<never>(() => {});
  first.weights.store.fill = () => never;
  neverRejects(first.weights.pull(`dir:${await plainFolder({ b: BYTES })}`));
  await eventually(
    'it pulls',
    5_000,
    () => first.weights.status().some(({ state }) => state === 'pulling') || undefined,
  );
  for (let at = 0; at < 2; at++) {
    const socket = await dialled(first, greedy);
    socket.resume().write(get(blobPath(randomBytes(PIECE))));
  }
  await eventually('they are asked for', 5_000, () => first.weights.store.awaited === 2 || undefined);
  expect(first.weights.uploads.active).toBe(0);
});
