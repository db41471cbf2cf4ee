import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import { atEnd, endAll } from '../../support/processes.ts';
import { Cluster, PIECE, plainFolder } from './cluster.ts';

afterEach(endAll);

const FILES = 24;

it('a node that hangs and coordinates some blobs is asked once: they are read of the source once all the same', async () => {
  let asked = 0;
  const silent = createServer((socket) => {
    asked++;
    socket.on('error', () => {});
  });
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  atEnd(() => void silent.close());
  const { port: nowhere } = silent.address() as AddressInfo;
  const cluster = new Cluster();
  const [first, second, hung] = await cluster.of(3);
  cluster.line = (_from, to, port) => (to === hung ? nowhere : port);
  const files = Object.fromEntries(Array.from({ length: FILES }, (_, i) => [`f${i}`, randomBytes(PIECE)]));
  const source = `dir:${await plainFolder(files)}`;
  await Promise.all([first?.weights.pull(source), second?.weights.pull(source)]);
  expect((first?.read ?? 0) + (second?.read ?? 0)).toBe(FILES * PIECE);
  // Per node: the question that timed out, its other questions meanwhile, and one more after each rest; not one for
  // each blob.
  expect(asked).toBeGreaterThan(0);
  expect(asked).toBeLessThan(FILES / 2);
});
