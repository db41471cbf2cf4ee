import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect as tlsConnect } from 'node:tls';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { OUTLET_WINDOW_BYTES, Outflow } from '../../../gateway/standalone/node/outflow.ts';
import { Outlets } from '../../../gateway/standalone/node/outlet.ts';
import { PublicSocket, type TlsMaterial } from '../../../gateway/standalone/node/public-socket.ts';
import { encodeFrame, readFrames } from '../../../shared/wire/frame-codec.ts';
import type { Frame } from '../../../shared/wire/frames.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../../support/processes.ts';

setFlagsFromString('--expose-gc');
const gc: () => void = runInNewContext('gc');

const MIB = 1024 * 1024;
const SESSION = 'abcdefghijklmnopqrstuvwxyz';
const STREAM = 2 ** 47 - 19;
const GET = 'GET / HTTP/1.1\r\nhost: h\r\n\r\n';
const FALLBACK = 'this front knows no outlets';

afterEach(endAll);

/** A socket with all that it received, and how it ended. */
class Peer {
  readonly socket: Socket;
  #chunks: Buffer[] = [];
  ended = false;
  error: NodeJS.ErrnoException | undefined;
  closed = false;

  constructor(socket: Socket) {
    this.socket = socket;
    socket.on('data', (chunk: Buffer) => this.#chunks.push(chunk));
    socket.on('end', () => {
      this.ended = true;
    });
    socket.on('error', (error) => {
      this.error = error;
    });
    socket.on('close', () => {
      this.closed = true;
    });
    atEnd(() => {
      socket.destroy();
    });
  }

  get bytes(): Buffer {
    this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0] ?? Buffer.alloc(0);
  }

  get text(): string {
    return this.bytes.toString('latin1');
  }

  /** Waits for as many bytes and for no more. */
  async expectText(text: string): Promise<void> {
    await eventually('all bytes', 5_000, () => (this.text.length >= text.length ? true : undefined)).catch(() => {});
    expect(this.text).toBe(text);
  }

  async expectAtLeast(text: string): Promise<void> {
    await eventually('its beginning', 5_000, () => (this.text.startsWith(text) ? true : undefined));
  }

  async expectReset(): Promise<void> {
    await eventually('a reset', 5_000, () => (this.closed ? true : undefined));
    expect(this.ended).toBe(false);
    expect(this.error?.code).toBe('ECONNRESET');
  }
}

/** The tunnel object's end of an outlet. */
class TunnelObject {
  readonly socket: WebSocket;
  readonly frames: Frame[] = [];
  closeCode: number | undefined;

  constructor(socket: WebSocket) {
    this.socket = socket;
    socket.on('message', (message: Buffer) => readFrames(message, (frame) => this.frames.push(frame)));
    socket.on('close', (code) => {
      this.closeCode = code;
    });
    socket.on('error', () => {});
    atEnd(() => socket.terminate());
  }

  send(...frames: Frame[]): void {
    for (const frame of frames) this.socket.send(encodeFrame(frame));
  }

  announce(stream = STREAM): void {
    this.send({ type: 'accept', stream, bodyOffset: 0, bodyDone: false });
  }

  data(offset: number, bytes: string | Buffer, stream = STREAM): void {
    this.send({ type: 'data', stream, offset, bytes: Buffer.from(bytes) });
  }

  end(offset: number, stream = STREAM): void {
    this.send({ type: 'end', stream, offset });
  }

  /** The next frame of that type. */
  frame<T extends Frame['type']>(type: T, stream = STREAM, withinMs = 5_000): Promise<Extract<Frame, { type: T }>> {
    const wanted = (frame: Frame): frame is Extract<Frame, { type: T }> =>
      frame.type === type && 'stream' in frame && frame.stream === stream;
    return eventually(`${type} of ${stream}`, withinMs, () => this.frames.find(wanted));
  }
}

class House {
  readonly outlets = new Outlets();
  readonly upstreams: Peer[] = [];
  #publicSocket: PublicSocket | undefined;
  #directory = '';
  #port = 0;

  async open(tls?: TlsMaterial): Promise<this> {
    this.#directory = await temporaryDirectory();
    const path = join(this.#directory, 'workerd.sock');
    const server = createServer((socket) => this.upstreams.push(new Peer(socket)));
    await once(server.listen(path), 'listening');
    await this.outlets.listen(join(this.#directory, 'outlet.sock'));
    const publicSocket = new PublicSocket({ path, tls, outlets: this.outlets });
    this.#publicSocket = publicSocket;
    this.#port = await publicSocket.listen(0, '127.0.0.1');
    atEnd(async () => {
      await publicSocket.close(0);
      await this.outlets.close();
      server.close();
    });
    return this;
  }

  drain(ms: number): Promise<void> | undefined {
    return this.#publicSocket?.close(ms);
  }

  dial(path = '/outlet', secret = this.outlets.secret, session = SESSION): WebSocket {
    const headers = { 'x-otela-outlet': secret, 'x-otela-session': session };
    return new WebSocket(`ws+unix://${join(this.#directory, 'outlet.sock')}:${path}`, { headers });
  }

  async object(): Promise<TunnelObject> {
    const object = new TunnelObject(this.dial());
    await once(object.socket, 'open');
    return object;
  }

  async client(secure = false): Promise<Peer> {
    const options = { port: this.#port, host: '127.0.0.1' };
    const socket = secure ? tlsConnect({ ...options, rejectUnauthorized: false }) : connect(options);
    await once(socket, secure ? 'secureConnect' : 'connect');
    return new Peer(socket);
  }

  /** A client whose request arrived, and workerd's side of its connection. */
  async exchange(request = GET, secure = false): Promise<{ client: Peer; upstream: Peer }> {
    const before = this.upstreams.length;
    const client = await this.client(secure);
    client.socket.write(request);
    const upstream = await eventually('the request', 5_000, () =>
      this.upstreams.slice(before).find(({ text }) => text === request),
    );
    return { client, upstream };
  }

  marked(first = '', stream = STREAM, more = ''): string {
    const body = first + FALLBACK;
    const marker = `X-Otela-Outlet: ${this.outlets.secret} ${SESSION} ${stream} ${first.length}`;
    return `HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\n${marker}\r\nContent-Type: text/event-stream\r\n${more}\r\n${body}`;
  }

  /** A client whose stream is taken. */
  async taken(first = ''): Promise<{ object: TunnelObject; client: Peer; upstream: Peer }> {
    const object = await this.object();
    const { client, upstream } = await this.exchange();
    object.announce();
    upstream.socket.write(this.marked(first));
    await object.frame('credit');
    return { object, client, upstream };
  }
}

const HEAD = 'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n';
const plain = (body: string) => `HTTP/1.1 200 OK\r\ncontent-length: ${body.length}\r\n\r\n${body}`;

test('a stream reaches its client as chunks, and the connection stays for the next request', async () => {
  const house = await new House().open();
  const { object, client, upstream } = await house.taken('data: 1\n\n');
  expect(await object.frame('credit')).toMatchObject({ consumed: 0, window: OUTLET_WINDOW_BYTES });
  object.data(0, 'data: 2\n\n');
  object.data(9, '');
  object.data(9, 'x'.repeat(300));
  object.end(309);
  const stream = `${HEAD}9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n12c\r\n${'x'.repeat(300)}\r\n0\r\n\r\n`;
  await client.expectText(stream);
  client.socket.write(GET);
  await upstream.expectText(GET + GET);
  upstream.socket.write(plain('next'));
  await client.expectText(stream + plain('next'));
  expect(house.upstreams).toHaveLength(1);
  // Small answers cause no credit, and a finished one no word when its client leaves.
  client.socket.destroy();
  await eventually('upstream closed', 5_000, () => (upstream.closed ? true : undefined));
  expect(object.frames).toHaveLength(1);
});

test('an answer without a first part begins with its head', async () => {
  const house = await new House().open();
  const { object, client } = await house.taken();
  await client.expectText(HEAD);
  object.end(0);
  await client.expectText(`${HEAD}0\r\n\r\n`);
});

test('head and body may come in two reads, split anywhere behind the secret', async () => {
  const house = await new House().open();
  const object = await house.object();
  // Numbers of one width, so that every answer is as long as the next.
  const numbered = (at: number) => house.marked('first', 100_000 + at);
  const split = async (at: number) => {
    const stream = 100_000 + at;
    const { client, upstream } = await house.exchange(`GET /${stream} HTTP/1.1\r\nhost: h\r\n\r\n`);
    object.announce(stream);
    // The first read is over when the client has what is before the answer.
    upstream.socket.write(plain('before') + numbered(at).slice(0, at));
    await client.expectText(plain('before'));
    upstream.socket.write(numbered(at).slice(at) + plain('behind'));
    await object.frame('credit', stream);
    object.data(0, 'second', stream);
    object.end(6, stream);
    await client.expectText(`${plain('before')}${HEAD}5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n${plain('behind')}`);
    client.socket.destroy();
  };
  const from = numbered(0).indexOf(house.outlets.secret) + house.outlets.secret.length;
  const offsets = Array.from({ length: numbered(0).length - from }, (_, i) => from + i);
  expect(offsets.length).toBeGreaterThan(100);
  await Promise.all(offsets.map(split));
});

test('an answer that workerd does not finish, or that is too large, resets its client', async () => {
  const house = await new House().open();
  const cut = await house.exchange();
  cut.upstream.socket.end(house.marked('first').slice(0, -5));
  await cut.client.expectReset();
  const large = await house.exchange();
  large.upstream.socket.write(house.marked('x'.repeat(65_536)));
  await large.client.expectReset();
});

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
    await object.frame('reset', 1);
    expect(object.closeCode).toBeUndefined();
  }
});

test('what is announced and does not come out is given back after a second', async () => {
  const house = await new House().open();
  const object = await house.object();
  const begun = performance.now();
  object.announce();
  expect(await object.frame('reset')).toMatchObject({ code: 'unknown' });
  expect(performance.now() - begun).toBeGreaterThan(950);
  expect(performance.now() - begun).toBeLessThan(2_000);
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
  const until = performance.now() + 1_200;
  while (performance.now() < until);
  await object.frame('credit');
  object.end(0);
  await client.expectText(`${HEAD}5\r\nfirst\r\n0\r\n\r\n`);
});

test('a head may come before its announcement, and waits two seconds for it', async () => {
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
  await never.client.expectReset();
  expect(performance.now() - begun).toBeGreaterThan(1_900);
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

test('workerd may close its idle connection below a stream; the next request opens another', async () => {
  const house = await new House().open();
  const { object, client, upstream } = await house.taken('first');
  upstream.socket.end();
  object.data(0, 'second');
  object.end(6);
  const stream = `${HEAD}5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n`;
  await client.expectText(stream);
  await eventually('upstream closed', 5_000, () => (upstream.closed ? true : undefined));
  client.socket.write(GET);
  const fresh = await eventually('a new connection', 5_000, () => house.upstreams[1]);
  await fresh.expectText(GET);
  fresh.socket.end(plain('next'));
  await client.expectText(stream + plain('next'));
  // A connection that had no stream ends as ever.
  await eventually('the end', 5_000, () => (client.ended ? true : undefined));
  expect(client.error).toBeUndefined();
});

test('a connection that its head calls closing ends behind the stream', async () => {
  const house = await new House().open();
  const object = await house.object();
  const { client, upstream } = await house.exchange();
  object.announce();
  upstream.socket.end(house.marked('first', STREAM, 'Connection: close\r\n'));
  await object.frame('credit');
  object.data(0, 'second');
  object.end(6);
  await eventually('the end', 5_000, () => (client.ended ? true : undefined));
  expect(client.text.endsWith('\r\n5\r\nfirst\r\n6\r\nsecond\r\n0\r\n\r\n')).toBe(true);
});

test('a request that workerd did not read before it closed below a stream is said again', async () => {
  const house = await new House().open();
  const { object, client, upstream } = await house.taken('first');
  client.socket.write(GET);
  await upstream.expectText(GET + GET);
  object.end(0);
  upstream.socket.end();
  const next = await eventually('another connection', 5_000, () => house.upstreams[1]);
  await next.expectText(GET);
  next.socket.write(plain('next'));
  await eventually('the answer', 5_000, () => (client.text.endsWith(plain('next')) ? true : undefined));
  expect(client.closed).toBe(false);
});

test('and only once: who is closed on again is told so', async () => {
  const house = await new House().open();
  const { object, client, upstream } = await house.taken('first');
  object.end(0);
  upstream.socket.end();
  await eventually('its end', 5_000, () => (client.text.endsWith('0\r\n\r\n') ? true : undefined));
  client.socket.write(GET);
  const next = await eventually('another connection', 5_000, () => house.upstreams[1]);
  await next.expectText(GET);
  next.socket.end();
  await eventually('the client is told', 5_000, () => (client.ended ? true : undefined));
  expect(house.upstreams).toHaveLength(2);
});

test('a client of HTTP/1.0 gets the stream as it is, and the end of its connection as its end', async () => {
  const house = await new House().open();
  const object = await house.object();
  const { client, upstream } = await house.exchange();
  object.announce();
  upstream.socket.write(house.marked('first').replace('HTTP/1.1', 'HTTP/1.0'));
  await object.frame('credit');
  object.data(0, 'second');
  object.end(6);
  await eventually('the end', 5_000, () => (client.ended ? true : undefined));
  expect(client.text).toBe('HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\nfirstsecond');
});

test('no client gets the secret, wherever a read ends: the stream is whole, or the client is reset', async () => {
  const house = await new House().open();
  const object = await house.object();
  const before = plain('one');
  const marked = before + house.marked('first');
  const secretAt = marked.indexOf(house.outlets.secret);
  let whole = 0;
  for (let cut = before.length; cut <= secretAt + 34; cut += cut < secretAt - 2 ? 17 : 1) {
    const stream = 10_000 + cut;
    const { client, upstream } = await house.exchange(GET + GET);
    object.announce(stream);
    const text = before + house.marked('first', stream);
    upstream.socket.write(text.slice(0, cut));
    await client.expectAtLeast(before);
    upstream.socket.write(text.slice(cut));
    const taken = () => object.frames.some((frame) => frame.type === 'credit' && frame.stream === stream);
    await eventually('it is taken or broken', 5_000, () => (taken() || client.closed ? true : undefined));
    if (taken()) {
      whole++;
      object.end(0, stream);
      await eventually('its end', 5_000, () => (client.text.endsWith('0\r\n\r\n') ? true : undefined));
    }
    for (let length = 8; length <= 32; length++) {
      expect(client.text).not.toContain(house.outlets.secret.slice(0, length));
    }
    client.socket.destroy();
  }
  expect(whole).toBeGreaterThan(20);
}, 60_000);

test('what follows a change of protocol is nobody’s answer', async () => {
  const house = await new House().open();
  const { client, upstream } = await house.exchange();
  const switching = 'HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n';
  upstream.socket.write(switching);
  await client.expectText(switching);
  const text = `HTTP/1.1 ${house.outlets.secret}\r\n\r\n`;
  upstream.socket.write(text);
  await client.expectText(switching + text);
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

test('answers to pipelined requests come behind the stream, in order, streams too', async () => {
  const house = await new House().open();
  const object = await house.object();
  const { client, upstream } = await house.exchange(GET + GET + GET);
  object.announce(1);
  object.announce(2);
  upstream.socket.write(house.marked('one', 1) + plain('two') + house.marked('three', 2));
  await object.frame('credit', 1);
  client.socket.write(GET);
  await upstream.expectText(GET.repeat(4));
  upstream.socket.write(plain('four'));
  object.data(0, 'more', 1);
  await client.expectText(`${HEAD}3\r\none\r\n4\r\nmore\r\n`);
  object.end(4, 1);
  await object.frame('credit', 2);
  object.end(0, 2);
  const streams = [`${HEAD}3\r\none\r\n4\r\nmore\r\n0\r\n\r\n`, `${HEAD}5\r\nthree\r\n0\r\n\r\n`];
  await client.expectText(`${streams[0]}${plain('two')}${streams[1]}${plain('four')}`);
});

test('ending waits for a stream that moves', async () => {
  const house = await new House().open();
  const { object, client } = await house.taken();
  const drained = house.drain(10_000);
  let offset = 0;
  const begun = performance.now();
  await eventually('1.5 s of tokens', 5_000, () => {
    object.data(offset, 'token');
    offset += 5;
    return performance.now() - begun > 1_500 ? true : undefined;
  });
  expect(client.closed).toBe(false);
  object.end(offset);
  await drained;
  await eventually('closed', 5_000, () => (client.closed ? true : undefined));
  expect(client.text.endsWith('5\r\ntoken\r\n0\r\n\r\n')).toBe(true);
});

const openssl = spawnSync('openssl', ['version']).status === 0;

test('clients with TLS get the same', async ({ skip }) => {
  skip(!openssl, 'no openssl here to make certificates');
  const directory = await temporaryDirectory();
  const [cert, key] = [join(directory, 'cert.pem'), join(directory, 'key.pem')];
  const made = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
  execFileSync('openssl', [...made, '-subj', '/CN=outlet', '-keyout', key, '-out', cert], { stdio: 'ignore' });
  const house = await new House().open({ cert: await readFile(cert), key: await readFile(key) });
  const object = await house.object();
  const { client, upstream } = await house.exchange(GET, true);
  object.announce();
  upstream.socket.write(house.marked('first'));
  await object.frame('credit');
  for (let i = 0; i < 2; i++) object.data(i * 65_536, Buffer.alloc(65_536, 'x'));
  await eventually('credit', 5_000, () =>
    object.frames.some((frame) => frame.type === 'credit' && frame.consumed >= OUTLET_WINDOW_BYTES / 4)
      ? true
      : undefined,
  );
  object.end(OUTLET_WINDOW_BYTES);
  const chunk = `10000\r\n${'x'.repeat(65_536)}\r\n`;
  const stream = `${HEAD}5\r\nfirst\r\n${chunk.repeat(2)}0\r\n\r\n`;
  await client.expectText(stream);
  client.socket.write(GET);
  await upstream.expectText(GET + GET);
  upstream.socket.write(plain('next'));
  await client.expectText(stream + plain('next'));
});
