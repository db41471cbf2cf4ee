/** Links between processes: what an end without the key, or a broken peer, can do. */
import { once } from 'node:events';
import { connect as connectHttp2 } from 'node:http2';
import { connect as connectTcp } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { serialize } from 'node:v8';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { clusterKey, decryptSecret, encryptSecret } from '../../../gateway/hosts/node/cluster/cluster-key.ts';
import { LinkClient } from '../../../gateway/hosts/node/cluster/link-client.ts';
import { encodeLinkFrame } from '../../../gateway/hosts/node/cluster/link-frames.ts';
import { type LinkCall, MovedError } from '../../../gateway/hosts/node/cluster/link-messages.ts';
import { LinkServer } from '../../../gateway/hosts/node/cluster/link-server.ts';
import { clientTls } from '../../../gateway/hosts/node/cluster/link-tls.ts';

const KEY = clusterKey('0123456789abcdef0123456789abcdef');
const OTHER_KEY = clusterKey('0123456789abcdef0123456789abcdeg');
const HELLO = { incarnation: 'server', version: '1' };

let server: LinkServer;
let port: number;
let log: string[];
let calls: LinkCall[];
let answer: (call: LinkCall) => Promise<unknown>;
let respond: (request: Request) => Promise<Response>;
let listed: string[][];
const links: LinkClient[] = [];

beforeEach(async () => {
  log = [];
  calls = [];
  listed = [];
  answer = async ({ args }) => args;
  respond = async (request) => new Response(request.body);
  server = new LinkServer({
    key: KEY,
    hello: HELLO,
    tunnels: () => ['session'],
    call: (call) => {
      calls.push(call);
      return answer(call);
    },
    fetch: (_className, _name, request) => respond(request),
    log: (line) => log.push(line),
  });
  port = await server.listen('127.0.0.1', 0);
});

afterEach(() => {
  for (const link of links.splice(0)) link.close();
  server.close();
});

/** Resolves when the link is open, or when it has closed. */
function linkTo(key = KEY, incarnation = 'server'): Promise<{ link: LinkClient; ended: boolean | undefined }> {
  return new Promise((resolve) => {
    const link: LinkClient = new LinkClient({
      key,
      address: `127.0.0.1:${port}`,
      incarnation,
      hello: { incarnation: 'client', version: '1' },
      opened: () => resolve({ link, ended: undefined }),
      closed: (ended) => resolve({ link, ended }),
      listed: (sessions) => listed.push([...sessions]),
      left: () => {},
    });
    links.push(link);
  });
}

const call = (link: LinkClient, ...args: unknown[]) => link.call({ className: 'C', name: 'n', method: 'm', args });

test('calls and their results are copies of any value that structuredClone copies', async () => {
  const { link } = await linkTo();
  const value = { list: [1, 'a', null, undefined], bytes: new Uint8Array([1, 2]), map: new Map([[1, new Date(5)]]) };
  expect(await call(link, value)).toEqual([value]);
  answer = async () => {
    throw Object.assign(new Error('as asked'), { overloaded: true });
  };
  await expect(call(link)).rejects.toMatchObject({ message: 'as asked', overloaded: true });
  answer = async () => () => {};
  await expect(call(link)).rejects.toThrow(/could not be cloned/);
  answer = async () => {
    throw new MovedError('elsewhere');
  };
  await expect(call(link)).rejects.toThrow(MovedError);
});

test('bodies pass byte for byte, as streams, and a reader that cancels ends the work', async () => {
  const { link } = await linkTo();
  const bytes = new Uint8Array(3_000_000).map((_, n) => (n * 7) % 251);
  const response = await link.fetch('C', 'n', new Request('http://o/', { method: 'POST', body: bytes }));
  expect(Buffer.from(await response.arrayBuffer()).equals(bytes)).toBe(true);
  const cancelled = vi.fn<() => void>();
  respond = async () => new Response(new ReadableStream({ pull: (c) => c.enqueue(bytes), cancel: cancelled }));
  const endless = await link.fetch('C', 'n', new Request('http://o/'));
  const reader = endless.body?.getReader();
  await reader?.read();
  await reader?.cancel();
  await vi.waitFor(() => expect(cancelled).toHaveBeenCalled(), 5_000);
});

test('an object that needs no more of a request answers it, and later calls pass', async () => {
  const { link } = await linkTo();
  const bytes = new Uint8Array(1_000_000);
  respond = async (request) => {
    await request.body?.cancel();
    await new Promise((resolve) => setTimeout(resolve, 50));
    return new Response('answered');
  };
  const sent = new Request('http://o/', { method: 'POST', body: bytes });
  expect(await (await link.fetch('C', 'n', sent)).text()).toBe('answered');
  expect(await call(link, 1)).toEqual([1]);
});

test.each([
  ['answers', async () => new Response('answered')],
  ['has moved', () => Promise.reject(new MovedError('elsewhere'))],
  ['fails', () => Promise.reject(new Error('as asked'))],
])('no stream stays if an object %s without reading the request', async (_what, answered) => {
  const { link } = await linkTo();
  respond = answered;
  const bytes = new Uint8Array(1_000_000);
  const sent = new Request('http://o/', { method: 'POST', body: bytes });
  await link.fetch('C', 'n', sent).then(
    (response) => response.text(),
    () => {},
  );
  await vi.waitFor(() => expect(link.streams).toBe(0), 5_000);
  expect(await call(link, 1)).toEqual([1]);
});

test('a slow reader holds the sender back', async () => {
  const { link } = await linkTo();
  let sent = 0;
  respond = async () =>
    new Response(
      new ReadableStream({
        pull: (controller) => {
          sent += 65_536;
          controller.enqueue(new Uint8Array(65_536));
        },
      }),
    );
  const response = await link.fetch('C', 'n', new Request('http://o/'));
  await response.body?.getReader().read();
  for (let before = -1; before !== sent; ) {
    before = sent;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  expect(sent).toBeLessThan(2_000_000);
});

test('a body that is cut is an error, not an end; a client that leaves aborts the request', async () => {
  const { link } = await linkTo();
  respond = async () =>
    new Response(
      new ReadableStream({
        start: (controller) => controller.enqueue(new Uint8Array([1])),
        pull: (controller) => controller.error(new Error('broken')),
      }),
    );
  const cut = await link.fetch('C', 'n', new Request('http://o/'));
  await expect(cut.arrayBuffer()).rejects.toThrow();
  const aborted = Promise.withResolvers<void>();
  respond = ({ signal }) =>
    new Promise(() => {
      signal.addEventListener('abort', () => aborted.resolve());
    });
  const leaving = new AbortController();
  const asked = link.fetch('C', 'n', new Request('http://o/', { signal: leaving.signal })).catch(() => 'failed');
  setTimeout(() => leaving.abort(), 50);
  expect(await asked).toBe('failed');
  await aborted.promise;
});

test('an end with another key gets nothing, in both directions', async () => {
  const { link, ended } = await linkTo(OTHER_KEY);
  expect(ended).toBe(false);
  await expect(call(link)).rejects.toThrow(MovedError);
  expect(calls).toEqual([]);
});

test('TLS without the pre-shared key, plain HTTP and silence get nothing', async () => {
  const tls = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false });
  await once(tls, 'error');
  const plain = connectTcp({ port, host: '127.0.0.1' });
  plain.write('POST /calls HTTP/1.1\r\nHost: o\r\n\r\n');
  const silent = connectTcp({ port, host: '127.0.0.1' });
  for (const socket of [plain, silent]) socket.on('error', () => {});
  await Promise.all([once(plain, 'close'), once(silent, 'close')]);
  expect(calls).toEqual([]);
});

test('another incarnation at the address proves that the former one has ended; a refused connection, too', async () => {
  expect((await linkTo(KEY, 'former')).ended).toBe(true);
  server.close();
  expect((await linkTo()).ended).toBe(true);
});

test('when the server ends, waiting calls are rejected and its agents are unknown', async () => {
  const { link } = await linkTo();
  await vi.waitFor(() => expect(link.hasTunnel('session')).toBe(true));
  expect(listed).toEqual([['session']]);
  server.tell(['other'], ['session']);
  await vi.waitFor(() => expect([link.hasTunnel('other'), link.hasTunnel('session')]).toEqual([true, false]));
  answer = () => new Promise(() => {});
  const waiting = call(link);
  const rejected = expect(waiting).rejects.toThrow(/broke/);
  server.close();
  await rejected;
  expect(link.hasTunnel('other')).toBe(false);
});

/** Bytes that a peer with the key may send by a fault. */
const BROKEN: Record<string, Buffer> = {
  'a length above the maximum': Buffer.from([0xff, 0xff, 0xff, 0xff]),
  'bytes that are no value': Buffer.concat([Buffer.from([0, 0, 0, 4]), Buffer.from('abcd')]),
  'a greeting without members': encodeLinkFrame(7),
  'a call with other members': Buffer.concat([encodeLinkFrame(HELLO), encodeLinkFrame({ id: 'x', method: 3 })]),
};

test.each(Object.entries(BROKEN))('%s ends the link, and the server goes on', async (_what, bytes) => {
  const session = connectHttp2(`https://127.0.0.1:${port}`, clientTls(KEY));
  session.on('error', () => {});
  const stream = session.request({ ':method': 'POST', ':path': '/calls' }, { endStream: false });
  stream.on('error', () => {});
  stream.write(bytes);
  await once(session, 'close');
  expect(log.some((line) => line.startsWith('a link is closed'))).toBe(true);
  expect(await call((await linkTo()).link, 1)).toEqual([1]);
});

test('a stream whose head is broken fails alone', async () => {
  const session = connectHttp2(`https://127.0.0.1:${port}`, clientTls(KEY));
  const broken = session.request({ ':method': 'POST', ':path': '/fetch' }, { endStream: false });
  broken.end(Buffer.concat([Buffer.from([0, 0, 0, 2]), serialize(1).subarray(0, 2)]));
  const [headers] = await once(broken, 'response');
  expect(headers[':status']).toBe(200);
  broken.resume();
  const other = session.request({ ':method': 'POST', ':path': '/other' });
  expect((await once(other, 'response'))[0][':status']).toBe(404);
  session.destroy();
});

test('a secret is only decrypted with its key and its name', () => {
  const sealed = encryptSecret(KEY, 'one', 'text');
  expect(decryptSecret(KEY, 'one', sealed)).toBe('text');
  expect(() => decryptSecret(OTHER_KEY, 'one', sealed)).toThrow(/another --cluster-key/);
  expect(() => decryptSecret(KEY, 'two', sealed)).toThrow(/another --cluster-key/);
  expect(() => decryptSecret(KEY, 'one', 'x')).toThrow(/another --cluster-key/);
});
