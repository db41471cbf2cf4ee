/** Requests to an engine on this machine, which are written to its socket without undici. */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, Socket } from 'node:net';
import fc from 'fast-check';
import { Pool } from 'undici';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { EngineClient } from '../../../../agent/attempts/engine-client.ts';
import { requestHead } from '../../../../agent/attempts/raw-http/request-head.ts';
import { findEndpoint } from '../../../../shared/openai/endpoints.ts';
import { openingFrame } from '../../../support/tunnel/hand-gateway.ts';

const endings: (() => unknown)[] = [];
afterEach(async () => {
  vi.restoreAllMocks();
  await Promise.all(endings.splice(0).map((end) => end()));
});

interface Engine {
  port: number;
  /** Number of connections so far. */
  connections: number;
  /** What arrived, by connection. */
  heard: string[];
  /** Sends each answer's pieces, one per turn, when a request has arrived; `undefined` closes the connection. */
  answers: (string | undefined)[][];
  sockets: Socket[];
}

async function startEngine(...answers: Engine['answers']): Promise<Engine> {
  const engine: Engine = { port: 0, connections: 0, heard: [], answers, sockets: [] };
  const server: Server = createServer((socket) => {
    const number = engine.connections++;
    engine.heard[number] = '';
    engine.sockets[number] = socket;
    endings.push(() => socket.destroy());
    socket.on('error', () => {});
    socket.on('data', (bytes: Buffer) => {
      const heard = (engine.heard[number] ?? '') + bytes.toString('latin1');
      engine.heard[number] = heard;
      if (!heard.endsWith('}')) return;
      const pieces = engine.answers.shift() ?? [undefined];
      const next = () => {
        if (pieces.length === 0) return;
        const piece = pieces.shift();
        if (piece === undefined) return void socket.destroySoon();
        socket.write(piece, 'latin1', () => setImmediate(next));
      };
      next();
    });
  });
  server.listen(0, '127.0.0.1');
  endings.push(() => server.close());
  await once(server, 'listening');
  engine.port = (server.address() as AddressInfo).port;
  return engine;
}

interface Outcome {
  status: number;
  headers: string[];
  sized: boolean;
  body: string;
  /** `end`, or the code of the error. */
  ending: string;
}

const endpoint = findEndpoint('POST', '/v1/chat/completions');
const BODY = '{"model":"m"}';
const LONG_BODY = `{"model":"${'m'.repeat(1_000_000)}"}`;

function clientOf(engine: Engine, host = '127.0.0.1'): EngineClient {
  const client = new EngineClient({ origin: `http://${host}:${engine.port}`, pathPrefix: '' });
  endings.push(() => client.close());
  return client;
}

/** `then` is called in the turn in which the response ends. */
function ask(client: EngineClient, body = BODY, then = () => {}): Promise<Outcome> {
  if (endpoint === undefined || 'methodNotAllowed' in endpoint) throw new Error('no such endpoint');
  const outcome: Outcome = { status: 0, headers: [], sized: false, body: '', ending: '' };
  return new Promise((resolve) => {
    const end = (ending: string) => {
      then();
      resolve({ ...outcome, ending });
    };
    client.call(openingFrame(1, { headers: [] }), endpoint, Buffer.from(body), body.length, {
      onHead: (status, list, sized) =>
        // llhttp leaves a tab behind a value, which RFC 9110 §5.5 does not count as a part of it.
        Object.assign(outcome, { status, sized, headers: list.map((pair) => pair.join(': ').trim()).sort() }),
      onData: (bytes) => {
        outcome.body += Buffer.from(bytes).toString('latin1');
      },
      onEnd: () => end('end'),
      onError: (code) => end(code),
    });
  });
}

const OK = 'HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-length: 2\r\n\r\n{}';

describe('a request to an engine on this machine', () => {
  it('is one write, without undici, on the connection of the request before', async () => {
    const engine = await startEngine([OK], [OK], [OK]);
    const client = clientOf(engine);
    const dispatched = vi.spyOn(Pool.prototype, 'dispatch');
    const writes = vi.spyOn(Socket.prototype, 'write');
    for (let round = 0; round < 3; round++)
      expect(await ask(client)).toMatchObject({ status: 200, body: '{}', ending: 'end' });
    const ours = writes.mock.contexts.filter((socket) => (socket as Socket).remotePort === engine.port);
    expect([ours.length, dispatched.mock.calls.length, engine.connections]).toEqual([3, 0, 1]);
    expect(engine.heard[0]?.slice(0, engine.heard[0].indexOf(BODY) + BODY.length)).toBe(
      `POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:${engine.port}\r\nconnection: keep-alive\r\ncontent-length: 13\r\nx-request-id: request-1\r\naccept-encoding: identity\r\n\r\n${BODY}`,
    );
  });

  it('with a large body is two writes, and the body is not copied', async () => {
    const engine = await startEngine([OK]);
    const writes = vi.spyOn(Socket.prototype, 'write');
    const body = `{"model":"${'m'.repeat(100_000)}"}`;
    expect(await ask(clientOf(engine), body)).toMatchObject({ ending: 'end' });
    expect(engine.heard[0]?.endsWith(`\r\n\r\n${body}`)).toBe(true);
    expect(writes.mock.calls.map(([bytes]) => (bytes as Buffer).length)).toContain(body.length);
  });

  it.each([
    ['bytes behind a response', [`${OK}HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nforged!`]],
    ['bytes behind a response, in another read', [OK, 'HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nforged!']],
    ['a response that is the last', [OK.replace('content-type: a/b', 'connection: close')]],
    ['a response without a length', ['HTTP/1.1 200 OK\r\n\r\n{}', undefined]],
  ])('after %s gets a new connection', async (_, first) => {
    const engine = await startEngine([...first], [OK]);
    const client = clientOf(engine);
    expect(await ask(client)).toMatchObject({ body: '{}', ending: 'end' });
    await new Promise((resolve) => setTimeout(resolve, 20)); // the engine's second write has arrived
    expect(await ask(client)).toMatchObject({ body: '{}', ending: 'end' });
    expect(engine.connections).toBe(2);
  });

  it('that follows within the same turn does not get bytes that the engine sent behind the response', async () => {
    const engine = await startEngine([`${OK}HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nforged!`], [OK]);
    const client = clientOf(engine);
    let next: Promise<Outcome> | undefined;
    await ask(client, BODY, () => {
      next = ask(client);
    });
    expect(await next).toMatchObject({ body: '{}', ending: 'end' });
  });

  it('is asked once if the response broke off, and the next one gets a new connection', async () => {
    const engine = await startEngine([OK], [OK.slice(0, -1), undefined], [OK]);
    const client = clientOf(engine);
    expect(await ask(client)).toMatchObject({ ending: 'end' });
    expect(await ask(client)).toMatchObject({ status: 200, ending: 'engine_closed' });
    expect(await ask(client)).toMatchObject({ ending: 'end' });
    expect(engine.connections).toBe(2);
  });

  it('is not repeated if the engine read it and closed the connection without an answer', async () => {
    const engine = await startEngine([OK], [undefined], [OK]);
    const client = clientOf(engine);
    expect(await ask(client)).toMatchObject({ ending: 'end' });
    expect(await ask(client)).toMatchObject({ status: 0, ending: 'engine_closed' });
    expect(engine.connections).toBe(1);
  });

  it.each([
    ['before it arrived', BODY, (socket: Socket) => socket.destroy(), () => {}],
    // Longer than what a paused socket of Node reads ahead.
    ['before it read all of it', LONG_BODY, (socket: Socket) => socket.pause(), (socket: Socket) => socket.destroy()],
  ])('is repeated on a new connection if the engine closed the first one %s', async (_, body, before, after) => {
    const engine = await startEngine([OK], [OK]);
    const client = clientOf(engine);
    expect(await ask(client)).toMatchObject({ ending: 'end' });
    const [socket] = engine.sockets;
    if (socket === undefined) throw new Error('there is no connection');
    before(socket);
    const outcome = ask(client, body);
    await new Promise((resolve) => setTimeout(resolve, 20)); // the request has arrived
    after(socket);
    expect(await outcome).toMatchObject({ body: '{}', ending: 'end' });
    expect([engine.connections, engine.heard[0]?.split('POST').length]).toEqual([2, 2]);
  });

  it('fails at once if no program listens, or if the client is closed', async () => {
    const engine = await startEngine([OK], ['HTTP/1.1 ']);
    const client = clientOf(engine);
    expect(await ask(client)).toMatchObject({ ending: 'end' });
    const waiting = ask(client);
    await client.close();
    expect(await waiting, 'not repeated').toMatchObject({ ending: 'engine_closed' });
    expect(await ask(client)).toMatchObject({ ending: 'engine_closed' });
    expect(engine.connections).toBe(1);
    const unused = { ...engine, port: 1 };
    expect(await ask(clientOf(unused))).toMatchObject({ ending: 'engine_unreachable' });
  });

  it('of a malicious gateway cannot contain a second request, nor change how its body is read', () => {
    const head = { method: 'POST', path: '/v1/x', host: '127.0.0.1:1', headers: [] as string[], bodyLength: 0 };
    expect(requestHead(head)).toContain('POST /v1/x HTTP/1.1\r\n');
    for (const headers of [
      ['a', 'b\r\nGET / HTTP/1.1'],
      ['a', 'b\nc: d'],
      ['a\r\nb', 'c'],
      ['a: b', 'c'],
      ['', 'c'],
      ['a', '\0'],
      ['a', 'Zürich'],
      ['Content-Length', '5'],
      ['transfer-encoding', 'chunked'],
      ['Connection', 'upgrade'],
      ['expect', '100-continue'],
      ['host', 'other'],
    ])
      expect(requestHead({ ...head, headers }), headers.join()).toBeUndefined();
    expect(requestHead({ ...head, path: '/v1 HTTP/1.1\r\nx: y' })).toBeUndefined();
    expect(requestHead({ ...head, host: 'a\r\nb' })).toBeUndefined();
  });

  it('goes on when a paused reader wants more', async () => {
    const large = 'x'.repeat(4 * 1024 * 1024);
    const engine = await startEngine([`HTTP/1.1 200 OK\r\ncontent-length: ${large.length}\r\n\r\n`, large], [OK]);
    const client = clientOf(engine);
    let bytes = 0;
    let pauses = 0;
    if (endpoint === undefined || 'methodNotAllowed' in endpoint) throw new Error('no such endpoint');
    await new Promise<void>((resolve, reject) => {
      const call = client.call(openingFrame(1), endpoint, Buffer.from(BODY), BODY.length, {
        onHead: () => {},
        onData: (chunk) => {
          bytes += chunk.length;
          pauses++;
          call.pause();
          setImmediate(() => call.resume());
        },
        onEnd: resolve,
        onError: reject,
      });
    });
    expect(bytes).toBe(large.length);
    expect(pauses).toBeGreaterThan(10);
    expect(await ask(client), 'the connection is not left paused').toMatchObject({ ending: 'end' });
    expect(engine.connections).toBe(1);
  });
});

describe('every response', () => {
  const part = fc.constantFrom(
    ...['content-length: 2', 'content-length: 3', 'transfer-encoding: chunked', 'transfer-encoding: gzip', 'a: b'],
    ...['connection: close', 'connection: keep-alive', 'keep-alive: timeout=5', 'content-type: x/y', 'a:\t c \t', 'b:'],
    ...['content-encoding: br', 'x: Z\xc3\xbcrich', ' folded', 'no colon', 'c : d', 'e: f\rg', 'h: i\nj: k'],
  );
  const status = fc.constantFrom(
    'HTTP/1.1 200 OK',
    'HTTP/1.1 404 ',
    'HTTP/1.1 503',
    'HTTP/1.0 200 OK',
    'HTTP/1.1 204 No',
  );
  const bodies = fc.constantFrom(
    ...['{}', '{}}', '', '2\r\n{}\r\n0\r\n\r\n', '2\r\n{}\r\n0\r\na: b\r\n\r\n', '1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n'],
    ...['2\r\n{}\r\n', '2\n{}\n0\n\n', '3\r\n{}\r\n0\r\n\r\n', '02\r\n{}\r\n00\r\n\r\n', '2 \r\n{}\r\n0\r\n\r\n'],
  );
  const response = fc
    .tuple(status, fc.array(part, { maxLength: 4 }), bodies)
    .map(([line, parts, body]) => [line, ...parts, '', body].join('\r\n'));

  it('that is accepted is the one that undici reads', async () => {
    const [own, reference] = [await startEngine(), await startEngine()];
    // For this address, which is also of this machine, requests are for undici.
    const [raw, undici] = [clientOf(own), clientOf(reference, '[::ffff:127.0.0.1]')];
    const dispatched = vi.spyOn(Pool.prototype, 'dispatch');
    let accepted = 0;
    await fc.assert(
      fc.asyncProperty(response, fc.nat(80), async (text, cut) => {
        const pieces = [text.slice(0, cut), text.slice(cut), undefined].filter((piece) => piece !== '');
        own.answers.push([...pieces]);
        reference.answers.push([...pieces]);
        const [ours, theirs] = await Promise.all([ask(raw), ask(undici)]);
        if (ours.ending !== 'end') return;
        accepted++;
        expect(ours).toEqual(theirs);
      }),
      { numRuns: 400 },
    );
    expect(accepted).toBeGreaterThan(40);
    expect(dispatched.mock.calls.length).toBe(400);
  });
});
