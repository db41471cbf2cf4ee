/** The agent's connections to its engine. */
import { createServer, type Server } from 'node:http';
import { Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { EngineClient } from '../../../agent/attempts/engine-client.ts';
import { EngineRequestBody } from '../../../agent/attempts/engine-request-body.ts';
import { findEndpoint } from '../../../shared/openai/endpoints.ts';
import { openingFrame } from '../../support/tunnel/hand-gateway.ts';

const endings: (() => unknown)[] = [];
afterEach(async () => {
  await Promise.all(endings.splice(0).map((end) => end()));
});

function listen(server: Server): Promise<number> {
  endings.push(() => server.close());
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      resolve(typeof address === 'object' && address !== null ? address.port : 0);
    });
  });
}

/** The engine's status, or how the request failed. */
function ask(client: EngineClient, content?: Readable, length?: number): Promise<number | string> {
  const endpoint = findEndpoint('POST', '/v1/chat/completions');
  if (endpoint === undefined || 'methodNotAllowed' in endpoint) throw new Error('no such endpoint');
  const bytes = new TextEncoder().encode('{"model":"m"}');
  const body = new EngineRequestBody([], bytes.length, () => {});
  body.data(0, bytes);
  body.end(bytes.length);
  return new Promise((resolve) => {
    let answered = 0;
    const total = length ?? body.contentLength;
    client.call(openingFrame(1, { bodyLength: bytes.length }), endpoint, content ?? body.open(), total, {
      onHead: (status) => {
        answered = status;
      },
      onData: () => {},
      onEnd: () => resolve(answered),
      onError: (code) => resolve(code),
    });
  });
}

describe('a connection that the engine closed while it was idle', () => {
  // After `end` the engine may have begun, as it closed the connection without a reset.
  it.each([
    ['reset', 'asked again on a new one', 200, 2],
    ['end', 'not asked again', 'engine_closed', 1],
  ] as const)('(%s): the request that met it is %s', async (how, _, expected, connections) => {
    const sockets = new Set<object>();
    let met = 0;
    const server = createServer((request, response) => {
      const known = sockets.has(request.socket);
      sockets.add(request.socket);
      if (!known) return void response.end('{}');
      met++;
      if (how === 'end') request.socket.end();
      else request.socket.resetAndDestroy();
    });
    const port = await listen(server);
    const client = new EngineClient({ origin: `http://127.0.0.1:${port}`, pathPrefix: '' });
    endings.push(() => client.close());
    expect(await ask(client)).toBe(200);
    await setImmediate(); // now the connection is free
    expect(await ask(client)).toBe(expected);
    expect(met).toBe(1);
    expect(sockets.size).toBe(connections);
  });

  it('an engine that resets new ones too is asked twice and no more', async () => {
    let asked = 0;
    const server = createServer((request, response) => {
      if (++asked === 1) response.end('{}');
      else request.socket.resetAndDestroy();
    });
    const client = new EngineClient({ origin: `http://127.0.0.1:${await listen(server)}`, pathPrefix: '' });
    endings.push(() => client.close());
    expect(await ask(client)).toBe(200);
    await setImmediate();
    expect(await ask(client)).toBe('engine_closed');
    expect(asked).toBe(3);
  });
});

it.each(['end', 'reset'] as const)(
  'an engine that read a request on a new connection and closed it (%s) is not asked again: it may have begun',
  async (how) => {
    let asked = 0;
    const server = createServer((request) => {
      asked++;
      request.resume().once('end', () => (how === 'end' ? request.socket.end() : request.socket.resetAndDestroy()));
    });
    const client = new EngineClient({ origin: `http://127.0.0.1:${await listen(server)}`, pathPrefix: '' });
    endings.push(() => client.close());
    expect(await ask(client)).toBe('engine_closed');
    expect(asked).toBe(1);
  },
);

it('a body that streams gets a connection that nothing idle can break', async () => {
  const sockets = new Set<object>();
  const server = createServer((request, response) => {
    const known = sockets.has(request.socket);
    sockets.add(request.socket);
    if (known) request.socket.resetAndDestroy();
    else request.resume().once('end', () => response.end('{}'));
  });
  const client = new EngineClient({ origin: `http://127.0.0.1:${await listen(server)}`, pathPrefix: '' });
  endings.push(() => client.close());
  const large = Buffer.alloc(3 * 1024 * 1024, 'a');
  for (let round = 0; round < 3; round++) {
    expect(await ask(client)).toBe(200);
    await setImmediate();
    const pieces = Array.from({ length: 48 }, (_, n) => large.subarray(n * 65_536, (n + 1) * 65_536));
    expect(await ask(client, Readable.from(pieces), large.length)).toBe(200);
    await setImmediate();
  }
});

const OK = 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n';
it.each([
  [
    'skips interim responses',
    `HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n${OK}`,
    200,
  ],
  // Undici closes the connection: https://github.com/nodejs/undici/issues/197
  ['refuses 100 Continue, because no request asks for it', `HTTP/1.1 100 Continue\r\n\r\n${OK}`, 'engine_closed'],
  // RFC 9110 §8.6 lets a recipient refuse the response or take the number; llhttp refuses.
  ['refuses a repeated content-length', `${OK}content-length: 2\r\n`, 'engine_closed'],
])('the HTTP client %s', async (_, head, outcome) => {
  const server = createServer((request) => {
    request.resume().once('end', () => request.socket.write(`${head}content-length: 2\r\n\r\n{}`));
  });
  const client = new EngineClient({ origin: `http://127.0.0.1:${await listen(server)}`, pathPrefix: '' });
  endings.push(() => client.close());
  expect(await ask(client)).toBe(outcome);
});
