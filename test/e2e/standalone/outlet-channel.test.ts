/**
 * The channel between a tunnel object and the process that owns the public socket: who may open one, what is announced, sent and
 * allowed on it, and what becomes of its streams when either end leaves or lies.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, expect, test } from 'vitest';
import type { WebSocket } from 'ws';
import { OUTLET_WINDOW_BYTES, Outflow } from '../../../gateway/standalone/node/outflow.ts';
import { encodeFrame } from '../../../shared/wire/frame-codec.ts';
import { atEnd, endAll, eventually } from '../../support/processes.ts';
import { HEAD, House, plain, SESSION, STREAM, type TunnelObject } from './outlet-house.ts';

setFlagsFromString('--expose-gc');
const gc: () => void = runInNewContext('gc');

const MIB = 1024 * 1024;

afterEach(endAll);

test('a client that does not read holds its stream up, and can have all of it afterwards', async () => {
  const house = await new House().open();
  const { object, client } = await house.taken();
  client.socket.pause();
  const body = Buffer.alloc(8 * MIB);
  for (let i = 0; i < body.length; i += 4) body.writeUInt32LE((i * 2_654_435_761) % 2 ** 32, i);
  let sent = 0;
  let ended = false;
  const push = () => {
    const credits = object.frames.filter((frame) => frame.type === 'credit');
    const allowed = Math.max(...credits.map(({ consumed, window }) => consumed + window));
    for (; sent < body.length && sent + 65_536 <= allowed; sent += 65_536) {
      object.data(sent, body.subarray(sent, sent + 65_536));
    }
    if (sent === body.length && !ended) {
      ended = true;
      object.end(sent);
    }
  };
  object.socket.on('message', push);
  push();
  let last = -1;
  await eventually('credit stands still', 20_000, async () => {
    await new Promise((resolve) => setTimeout(resolve, 300));
    const still = sent === last;
    last = sent;
    return still ? true : undefined;
  });
  // Two kernel buffers of a local connection and one window.
  expect(sent).toBeGreaterThanOrEqual(OUTLET_WINDOW_BYTES);
  expect(sent).toBeLessThan(7 * MIB);
  client.socket.resume();
  await eventually('the end', 20_000, () =>
    client.bytes.subarray(-5).equals(Buffer.from('0\r\n\r\n')) ? true : undefined,
  );
  const hash = createHash('sha256');
  const received = client.bytes;
  let at = HEAD.length;
  for (;;) {
    const line = received.indexOf('\r\n', at);
    const size = Number.parseInt(received.toString('latin1', at, line), 16);
    if (size === 0) break;
    hash.update(received.subarray(line + 2, line + 2 + size));
    at = line + 2 + size + 2;
  }
  expect(hash.digest('hex')).toBe(createHash('sha256').update(body).digest('hex'));
});

test('a client that leaves is told to the object at once', async () => {
  for (const leave of ['end', 'destroy', 'resetAndDestroy'] as const) {
    const house = await new House().open();
    const { object, client } = await house.taken('first');
    object.data(0, 'second');
    await eventually('both', 5_000, () => (client.text.includes('second') ? true : undefined));
    client.socket[leave]();
    expect(await object.frame('reset', STREAM, 100)).toMatchObject({ code: 'cancelled' });
    // What crosses it is no fault.
    object.data(6, 'third');
    object.announce(1);
    await eventually('it is read', 900, () => (object.asked.includes(1) ? true : undefined));
    expect(object.closeCode).toBeUndefined();
  }
});

test('what is announced and does not come out is asked for, and given back after five seconds', async () => {
  const house = await new House().open();
  const object = await house.object();
  const begun = performance.now();
  object.announce();
  await eventually('it is asked for', 900, () => (object.asked.length > 0 ? true : undefined));
  expect(await object.frame('reset', STREAM, 6_500)).toMatchObject({ code: 'unknown' });
  expect(performance.now() - begun).toBeGreaterThan(4_900);
  expect(performance.now() - begun).toBeLessThan(6_500);
});

test('what its client does not want any more is given back at once, announced before that or after', async () => {
  const house = await new House().open();
  const object = await house.object();
  object.announce();
  await eventually('it is asked for', 900, () => (object.asked.length > 0 ? true : undefined));
  house.outlets.refuse(SESSION, STREAM);
  expect(await object.frame('reset', STREAM, 100)).toMatchObject({ code: 'cancelled' });

  house.outlets.refuse(SESSION, 1);
  object.announce(1);
  expect(await object.frame('reset', 1, 100)).toMatchObject({ code: 'cancelled' });

  const { client, upstream } = await house.exchange();
  upstream.socket.write(house.marked('first', 2));
  await new Promise((resolve) => setTimeout(resolve, 50)); // its head is read, and waits
  client.socket.destroy();
  await new Promise((resolve) => setTimeout(resolve, 50));
  object.announce(2);
  expect(await object.frame('reset', 2, 100)).toMatchObject({ code: 'cancelled' });
  // The number is nobody's now, and free for another.
  object.announce(2);
  expect(object.closeCode).toBeUndefined();
});

test('an event loop that stood still for long gives nothing back that came out meanwhile', async () => {
  const house = await new House().open();
  const object = await house.object();
  const { client, upstream } = await house.exchange();
  const other = await house.exchange();
  object.announce();
  // Messages are read in order: the answer to the second announcement says that the first was.
  object.announce(1);
  other.upstream.socket.write(house.marked('', 1));
  await object.frame('credit', 1);
  // Behind immediates the event loop's next turn begins, with timers.
  await new Promise((resolve) => setImmediate(resolve));
  upstream.socket.write(house.marked('first'));
  const until = performance.now() + 5_200;
  while (performance.now() < until);
  await object.frame('credit');
  object.end(0);
  await client.expectText(`${HEAD}5\r\nfirst\r\n0\r\n\r\n`);
});

test('a head may come before its announcement, and waits five seconds for it', async () => {
  const house = await new House().open();
  const { client, upstream } = await house.exchange();
  upstream.socket.write(plain('before') + house.marked('first'));
  await client.expectText(plain('before'));
  const object = await house.object();
  object.announce();
  await object.frame('credit');
  object.end(0);
  await client.expectText(`${plain('before')}${HEAD}5\r\nfirst\r\n0\r\n\r\n`);

  const never = await house.exchange();
  const begun = performance.now();
  never.upstream.socket.write(house.marked('first', 5));
  await never.client.expectReset(7_000);
  expect(performance.now() - begun).toBeGreaterThan(4_900);
  expect(never.client.text).toBe('');
});

test('an end or a reset that comes before its head is kept for it', async () => {
  const house = await new House().open();
  const object = await house.object();
  const [ended, broken] = [await house.exchange(), await house.exchange()];
  object.announce(1);
  object.end(0, 1);
  object.announce(2);
  object.send({ type: 'reset', stream: 2, code: 'failed', message: 'gone' });
  // As above.
  const { upstream } = await house.exchange();
  object.announce(3);
  upstream.socket.write(house.marked('', 3));
  await object.frame('credit', 3);
  ended.upstream.socket.write(house.marked('all of it', 1));
  broken.upstream.socket.write(house.marked('first', 2));
  await ended.client.expectText(`${HEAD}9\r\nall of it\r\n0\r\n\r\n`);
  await broken.client.expectReset();
});

test('a stream whose object goes away, or resets it, never looks complete', async () => {
  const house = await new House().open();
  const gone = await house.taken('first');
  const [older, newer] = [gone.object, await house.object()];
  const other = await house.exchange();
  newer.announce(7);
  other.upstream.socket.write(house.marked('', 7));
  await newer.frame('credit', 7);
  older.socket.terminate();
  await gone.client.expectReset();
  expect(gone.client.text).toBe(`${HEAD}5\r\nfirst\r\n`);
  newer.data(0, 'here', 7);
  await other.client.expectText(`${HEAD}4\r\nhere\r\n`);
  newer.send({ type: 'reset', stream: 7, code: 'engine_closed', message: 'it died' });
  await other.client.expectReset();
  expect(newer.frames.filter(({ type }) => type === 'reset')).toEqual([]);
});

test('only who knows the secret is let in, at one path, with a session', async () => {
  const house = await new House().open();
  const statusOf = async (socket: WebSocket) => {
    socket.on('error', () => {});
    const [, response] = await once(socket, 'unexpected-response');
    return response.statusCode;
  };
  const { secret } = house.outlets;
  expect(secret).toMatch(/^[0-9a-f]{32}$/);
  expect(await statusOf(house.dial('/outlet', secret.replace(/.$/, 'x')))).toBe(403);
  expect(await statusOf(house.dial('/outlet', ''))).toBe(403);
  expect(await statusOf(house.dial('/', secret))).toBe(404);
  expect(await statusOf(house.dial('/outlet', secret, 'ABC'))).toBe(400);
});

test.each<[string, (object: TunnelObject) => void]>([
  ['noise', ({ socket }) => socket.send(Buffer.from([0xff, 0xff]))],
  ['text', ({ socket }) => socket.send('hello')],
  ['a frame of another protocol', ({ socket }) => socket.send(encodeFrame({ type: 'recorded', sequence: 1 }))],
  ['bytes that do not follow', (object) => object.data(1, 'x')],
  ['an end in the wrong place', (object) => object.end(1)],
  ['a number announced twice', (object) => object.announce()],
  [
    'data before the take',
    (object) => {
      object.announce(1);
      object.data(0, 'x', 1);
    },
  ],
])('%s closes the WebSocket and resets its clients', async (_name, garbage) => {
  const house = await new House().open();
  const { object, client } = await house.taken('first');
  garbage(object);
  await client.expectReset();
  expect(await eventually('the code', 5_000, () => object.closeCode)).toBe(1002);
});

test('so does an object that sends what nobody allowed', async () => {
  const house = await new House().open();
  const { object, client } = await house.taken();
  client.socket.pause();
  for (let i = 0; i < 512; i++) object.data(i * 65_536, Buffer.alloc(65_536));
  expect(await eventually('the code', 5_000, () => object.closeCode)).toBe(1002);
  client.socket.resume();
  await client.expectReset();
});

test('pieces of a byte each, for a client that does not read, cost little more than themselves', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const reader = connect({ port, host: '127.0.0.1' }).pause();
  const [client] = (await once(server, 'connection')) as [Socket];
  atEnd(() => {
    reader.destroy();
    client.destroy();
    server.close();
  });
  while (client.writableLength === 0) client.write(Buffer.alloc(64 * 1024)); // more than the kernel takes
  let granted = 0;
  const options = { client, opening: Buffer.from('head'), chunked: true, traffic: { chunks: 0 } };
  const outflow = new Outflow({ ...options, ended: () => {}, broke: () => {} });
  outflow.begin({ credit: (consumed, window) => (granted = consumed + window), cancel: () => {} });
  const piece = Uint8Array.of(1);
  gc();
  const before = process.memoryUsage().heapUsed;
  const count = 60_000;
  expect(granted).toBeGreaterThan(count);
  for (let at = 0; at < count; at++) outflow.data(at, piece);
  gc();
  expect((process.memoryUsage().heapUsed - before) / MIB).toBeLessThan(4); // an entry for each would be 30
  const from = reader.bytesRead;
  outflow.end(count);
  reader.resume();
  await eventually('all of it', 5_000, () =>
    client.writableLength === 0 && reader.bytesRead > from ? true : undefined,
  );
});
