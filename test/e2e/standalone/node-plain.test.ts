/**
 * Connections on the fast path, over TCP: what it handles, what it passes to `node:http`, and how the connection ends.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { FastPathConnection } from '../../../gateway/hosts/node/fast-path/fast-path-connection.ts';
import type { FastPathResponse } from '../../../gateway/hosts/node/fast-path/fast-path-response.ts';
import { type FastPathHead, readFastPathHead } from '../../../gateway/hosts/node/fast-path/read-head.ts';
import { costBeside } from '../../support/cost.ts';
import { eventually } from '../../support/processes.ts';

const until = <T>(probe: () => T | undefined, what: string): Promise<T> => eventually(what, 10_000, probe);

const post = (body: string, more = '') =>
  `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n${more}content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;

describe('readPlain', () => {
  const read = (text: string) => readFastPathHead(Buffer.from(text, 'latin1'));

  it('takes a whole request, and owns its body', () => {
    const bytes = Buffer.from(post('{"a":1}', 'Authorization:  Bearer x \r\nconnection: Keep-Alive\r\n'));
    const head = readFastPathHead(bytes);
    bytes.fill(0);
    if (typeof head === 'string') throw new Error(head);
    expect([head.path, Buffer.from(head.body).toString()]).toEqual(['/v1/chat/completions', '{"a":1}']);
    expect(head.headers.get('authorization')).toBe('Bearer x');
  });

  it('a body that is not whole is incomplete', () => {
    expect(read(post('12345').slice(0, -1))).toBe('incomplete');
    expect(read(post('12345').slice(0, -5))).toBe('incomplete');
  });

  it.each([
    ['another method', post('x').replace('POST', 'GET')],
    ['a query', post('x').replace('completions', 'completions?a=1')],
    ['dots', post('x').replace('/chat/', '/chat/../')],
    ['HTTP/1.0', post('x').replace('1.1', '1.0')],
    ['a head that is not whole', post('x').slice(0, 40)],
    ['a second request behind it', post('x') + post('y')],
    ['one byte behind it', `${post('x')}\n`],
    ['chunks', post('x', 'transfer-encoding: chunked\r\n')],
    ['a length twice', post('x', 'content-length: 1\r\n')],
    ['a host twice', post('x', 'host: a\r\n')],
    ['no host', post('x').replace('host: a\r\n', '')],
    ['a strange host', post('x').replace('host: a', 'host: a/b')],
    ['no length', post('').replace('content-length: 0\r\n', '')],
    ['a signed length', post('x').replace('length: 1', 'length: +1')],
    ['a length with a zero before it', post('x').replace('length: 1', 'length: 01')],
    ['a long body', post('x'.repeat(65_537))],
    ['a folded line', post('x', 'a: b\r\n c\r\n')],
    ['a space before the colon', post('x', 'a : b\r\n')],
    ['a bare line feed', post('x', 'a: b\nc: d\r\n')],
    ['a NUL', post('x', 'a: \0\r\n')],
    ['a byte above ASCII', post('x', 'a: \xe9\r\n')],
    ['Expect', post('x', 'expect: 100-continue\r\n')],
    ['Upgrade', post('x', 'upgrade: h2c\r\n')],
    ['TE', post('x', 'te: trailers\r\n')],
    ['a connection that ends', post('x', 'connection: close\r\n')],
    ['many headers', post('x', Array.from({ length: 70 }, (_, at) => `h${at}: 1\r\n`).join(''))],
    ['a head above its bound', post('x', `a: ${'b'.repeat(17_000)}\r\n`)],
  ])('leaves to node:http: %s', (_, text) => {
    expect(read(text)).toBe('other');
  });

  it('judges a line of spaces as quickly as one of letters', () => {
    const text = post('x', `a:${' '.repeat(15_000)}\x01\r\n`);
    expect(read(text)).toBe('other');
    const often = (line: string) => () => {
      for (let n = 0; n < 200; n++) read(line);
    };
    const ratio = costBeside(often(text), often(post('x', `a:${'b'.repeat(15_000)}\x01\r\n`)));
    expect(ratio).toBeLessThan(50);
  });
});

interface Asked {
  head: FastPathHead;
  response: FastPathResponse;
  left: boolean;
}

let server: Server | undefined;
const clients: Socket[] = [];

afterEach(() => {
  for (const client of clients.splice(0)) client.destroy();
  server?.close();
});

/** A server with connections that begin on the fast path. `parsed` gets the requests that are passed to `node:http`. */
async function open({
  idleMs = 10_000,
  closing = () => false,
  takes = () => true,
}: {
  idleMs?: number;
  closing?: () => boolean;
  takes?: () => boolean;
} = {}) {
  const asked: Asked[] = [];
  const parsed: string[] = [];
  const told: string[] = [];
  const sockets: Socket[] = [];
  const tell = (word: string) => {
    told.push(word);
    return word;
  };
  server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
    sockets.push(socket);
    new FastPathConnection(socket, {
      idleMs,
      get closing() {
        return closing();
      },
      answer: (head, response) => {
        if (!takes()) return undefined;
        const one: Asked = { head, response, left: false };
        asked.push(one);
        return {
          leave: () => {
            one.left = true;
          },
        };
      },
      parse: (taken) => void taken.on('data', (bytes) => parsed.push(bytes.toString('latin1'))).on('error', () => {}),
      late: (late) => void late.end(tell('late')),
      cut: (cut) => void cut.end(tell('cut')),
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1').on('error', () => {});
  clients.push(client);
  let text = '';
  client.on('data', (bytes) => {
    text += bytes.toString('latin1');
  });
  const ended = new Promise((resolve) => client.once('close', resolve));
  await once(client, 'connect');
  const request = (at: number) => until(() => asked[at], `request ${at}`);
  return { client, asked, parsed, told, sockets, request, ended, text: () => text };
}

const answer = ({ response }: Asked, body = 'ok') => {
  response.writeHead(200, { 'content-type': 'text/plain', 'content-length': String(body.length) });
  response.end(body);
};

describe('a connection', () => {
  it('carries one request after another', async () => {
    const { client, request, text, parsed } = await open();
    client.write(post('one'));
    answer(await request(0), 'first');
    await until(() => text().endsWith('first') || undefined, 'the first answer');
    client.write(post('two'));
    const second = await request(1);
    answer(second, 'second');
    await until(() => text().endsWith('second') || undefined, 'the second answer');
    expect(text().match(/HTTP\/1\.1 200 OK\r\n/g)).toHaveLength(2);
    expect(text()).toMatch(/\r\ndate: \w{3}, .* GMT\r\nconnection: keep-alive\r\nkeep-alive: timeout=10\r\n\r\nfirst/);
    expect(parsed).toEqual([]);
  });

  it('takes a body that comes behind its head', async () => {
    const { client, request, parsed } = await open();
    client.write(post('body').slice(0, -4));
    setTimeout(() => client.write('body'), 5);
    expect(Buffer.from((await request(0)).head.body).toString()).toBe('body');
    expect(parsed).toEqual([]);
  });

  it('is node:http’s where the rest of a body does not come, with all that was read', async () => {
    const { client, parsed } = await open();
    const text = post('body').slice(0, -2);
    client.write(text);
    await until(() => parsed[0], 'the connection');
    client.write('dy');
    await until(() => parsed[1], 'the rest');
    expect(parsed.join('')).toBe(post('body'));
  });

  it('is node:http’s with the first bytes that are not plain, after the answer that is on its way', async () => {
    const { client, request, parsed, text } = await open();
    client.write(post('one'));
    const first = await request(0);
    client.write('GET / HTTP/1.1\r\n');
    client.write('\r\n');
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(parsed).toEqual([]);
    answer(first);
    await until(() => parsed.join('') === 'GET / HTTP/1.1\r\n\r\n' || undefined, 'what came behind');
    expect(text()).toMatch(/ok$/);
  });

  it('is node:http’s where the gateway does not take the request', async () => {
    const { client, parsed } = await open({ takes: () => false });
    client.write(post('one'));
    await until(() => parsed.join('') === post('one') || undefined, 'the request');
  });

  it('streams in chunks, and a stalled client holds the writer until it reads', async () => {
    const { client, request, text } = await open();
    client.write(post('one'));
    const { response } = await request(0);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    expect(response.write(Buffer.from('data: 1\n\n'))).toBe(true);
    response.write(Buffer.alloc(20_000, 120));
    response.end();
    await until(() => text().endsWith('0\r\n\r\n') || undefined, 'the end');
    const body = text().split('\r\n\r\n').slice(1).join('\r\n\r\n');
    expect(text()).toContain('transfer-encoding: chunked\r\n');
    expect(body).toBe(`9\r\ndata: 1\n\n\r\n4e20\r\n${'x'.repeat(20_000)}\r\n0\r\n\r\n`);
    client.pause();
    client.write(post('two'));
    const second = (await request(1)).response;
    second.writeHead(200, {});
    let drained = false;
    second.on('drain', () => {
      drained = true;
    });
    const piece = Buffer.alloc(1 << 20);
    while (second.write(piece)) await new Promise((resolve) => setImmediate(resolve));
    expect(drained).toBe(false);
    client.resume();
    await until(() => drained || undefined, 'drain');
  });

  it('a client that leaves is told to the request, and its answer goes nowhere', async () => {
    const { client, request, sockets } = await open();
    client.write(post('one'));
    const one = await request(0);
    let closed = false;
    one.response.on('close', () => {
      closed = true;
    });
    client.resetAndDestroy();
    await until(() => one.left || undefined, 'that it left');
    expect([closed, one.response.destroyed]).toEqual([true, true]);
    expect(one.response.write(Buffer.from('x'))).toBe(false);
    answer(one);
    await until(() => sockets[0]?.destroyed || undefined, 'the end of the socket');
  });

  it('a FIN in the middle of an answer ends it', async () => {
    const { client, request, ended } = await open();
    client.write(post('one'));
    const one = await request(0);
    client.end();
    await until(() => one.left || undefined, 'that it left');
    await ended;
  });

  it('a FIN in the middle of a request is told, and between two it is none', async () => {
    const cut = await open();
    cut.client.end(post('body').slice(0, -2));
    await cut.ended;
    expect([cut.told, cut.text()]).toEqual([['cut'], 'cut']);
    server?.close();
    const idle = await open();
    idle.client.write(post('one'));
    answer(await idle.request(0));
    await until(() => idle.text().endsWith('ok') || undefined, 'the answer');
    idle.client.end();
    await idle.ended;
    expect([idle.told, idle.asked[0]?.left]).toEqual([[], false]);
  });

  it('without a request it is told that it is late; after one it is closed in silence; with one it stays', async () => {
    const late = await open({ idleMs: 60 });
    await late.ended;
    expect(late.text()).toBe('late');
    server?.close();
    const { client, request, ended, told, text } = await open({ idleMs: 60 });
    client.write(post('one'));
    const one = await request(0);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(client.destroyed).toBe(false);
    answer(one);
    await ended;
    expect([told, text().endsWith('ok')]).toEqual([[], true]);
  });

  it('what a client sends beyond the bound is not kept: the answer is the last', async () => {
    const { client, request, ended, text, parsed, asked } = await open();
    client.write(post('one'));
    const one = await request(0);
    client.write(post('two').repeat(2_000));
    await until(() => client.writableLength === 0 || undefined, 'that all is read');
    await new Promise((resolve) => setTimeout(resolve, 20));
    answer(one);
    await ended;
    expect([text().endsWith('ok'), parsed, asked.length]).toEqual([true, [], 1]);
  });

  it('a client that goes on sending loses its connection', async () => {
    const { client, request, ended } = await open();
    client.write(post('one'));
    const one = await request(0);
    client.write(Buffer.alloc(2 * 1024 * 1024, 'x'));
    await ended;
    expect(one.left).toBe(true);
  });

  it('ends after its answer while the gateway closes, or where the answer says so', async () => {
    let closing = false;
    const one = await open({ closing: () => closing });
    one.client.write(post('one'));
    const first = await one.request(0);
    closing = true;
    answer(first);
    await one.ended;
    expect(one.text()).toMatch(/ok$/);
    server?.close();
    const other = await open();
    other.client.write(post('one'));
    const { response } = await other.request(0);
    response.writeHead(413, { connection: 'close', 'content-length': '0' });
    response.end();
    await other.ended;
    expect(other.text()).toMatch(/^HTTP\/1\.1 413 Payload Too Large\r\n[\s\S]*\r\nconnection: close\r\n\r\n$/);
  });

  it('what comes behind the last answer is no request, though the connection is not quite closed', async () => {
    const { client, request, ended, asked, parsed, sockets } = await open();
    client.write(post('one'));
    const one = await request(0);
    const [socket] = sockets;
    if (socket === undefined) throw new Error('no socket');
    const destroySoon = socket.destroySoon.bind(socket);
    socket.destroySoon = () => {
      destroySoon();
      socket.emit('data', Buffer.from(post('two')));
      socket.emit('data', Buffer.from('GET / HTTP/1.1\r\n'));
    };
    one.response.writeHead(413, { connection: 'close', 'content-length': '0' });
    one.response.end();
    await ended;
    expect([asked.length, parsed]).toEqual([1, []]);
  });

  it('a header that would be two is not sent', async () => {
    const { client, request } = await open();
    client.write(post('one'));
    const { response } = await request(0);
    expect(() => response.writeHead(200, { a: 'b\r\nc: d' })).toThrow('cannot be sent');
    expect(() => response.writeHead(200, { 'a\nb': 'c' })).toThrow('cannot be sent');
  });

  it('a status without a body has none', async () => {
    const { client, request, text } = await open();
    client.write(post('one'));
    const { response } = await request(0);
    response.writeHead(204, {});
    response.end();
    await until(() => text().endsWith('\r\n\r\n') || undefined, 'the answer');
    expect(text()).not.toMatch(/chunked|content-length/);
  });
});
