/** The end of an HTTP server: each request that has begun gets a response, and no other connection delays it. */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { connect as tlsConnect } from 'node:tls';
import { afterEach, expect, it, vi } from 'vitest';
import type { Env } from '../../../gateway/env.ts';
import { HttpServer, type TlsMaterial } from '../../../gateway/hosts/node/http-server.ts';
import { LocalOffloads } from '../../../gateway/hosts/node/local-offload.ts';
import type { HttpRequest } from '../../../gateway/http/http-request.ts';
import { stoppingError } from '../../../gateway/platform/stopping-error.ts';
import { errorBody } from '../../../shared/openai/api-errors.ts';
import type { ProxyResponse } from '../../../shared/proxy/proxy-http-types.ts';
import { NO_OPENSSL, OPENSSL, selfSigned } from '../../support/certificate.ts';
import { eventually, temporaryDirectory } from '../../support/processes.ts';

const pipeline = vi.hoisted(() => ({ asked: 0, answer: (): Promise<unknown> => Promise.reject(new Error('not set')) }));
vi.mock('../../../gateway/openai/handle-openai.ts', () => ({
  handleOpenAI: async (http: HttpRequest) => {
    if (http.whole === undefined && http.body !== null) for await (const _ of http.body);
    pipeline.asked++;
    return pipeline.answer();
  },
}));
const LARGE = new Uint8Array(24 * 1024 * 1024);
vi.mock('../../../gateway/app.ts', () => ({ app: { fetch: async () => new Response(LARGE) } }));

const DRAIN_MS = 1_500;
const BODY = '{"model":"m"}';
const HEAD = `POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: ${BODY.length}\r\n\r\n`;
/** node:http answers a request with a query, and the fast path a request without one. */
const PARSED = HEAD.replace('completions', 'completions?a=1');
const OK: ProxyResponse = { status: 200, headers: { 'content-type': 'application/json' }, body: '{}' };
const sockets: Socket[] = [];
let server: HttpServer | undefined;
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  await server?.close(0);
});

async function open(tls?: TlsMaterial): Promise<number> {
  pipeline.asked = 0;
  const background = { waitUntil: () => {} };
  server = new HttpServer({ tls, env: {} as Env, offloads: new LocalOffloads(), background });
  return server.listen(0, '127.0.0.1');
}

async function client(port: number, tls = false) {
  const to = { port, host: '127.0.0.1' };
  const socket = tls ? tlsConnect({ ...to, rejectUnauthorized: false }) : connect(to);
  sockets.push(socket);
  let text = '';
  socket.on('error', () => {}).on('data', (bytes) => (text += bytes.toString('latin1')));
  const ended = once(socket, 'close');
  await once(socket, tls ? 'secureConnect' : 'connect');
  return { socket, ended, text: () => text };
}

/** Status, two headers and the body of the response that a client received. */
function response(text: string) {
  const at = text.indexOf('\r\n\r\n');
  const [line = '', ...lines] = text.slice(0, at).toLowerCase().split('\r\n');
  const headers = Object.fromEntries(lines.map((header) => header.split(': ')));
  const { connection, 'retry-after': retryAfter } = headers;
  return { status: Number(line.split(' ')[1]), connection, retryAfter, body: text.slice(at + 4) };
}
const ANSWERED = { status: 200, connection: 'close', body: '{}' };
const REFUSED = { status: 503, connection: 'close', retryAfter: '1', body: errorBody(stoppingError()) };

const asked = (count: number) => eventually(`${count} requests`, 5_000, () => pipeline.asked === count || undefined);
const stop = (drainMs = DRAIN_MS) => server?.close(drainMs) ?? Promise.reject(new Error('not open'));
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

it.each([HEAD, PARSED])('a response that begins during the end is the last one of its connection', async (head) => {
  const port = await open();
  const answer = Promise.withResolvers<unknown>();
  pipeline.answer = () => answer.promise;
  const { socket, ended, text } = await client(port);
  socket.write(head + BODY);
  await asked(1);
  const stopped = stop();
  answer.resolve({ ...OK, headers: { ...OK.headers } });
  await Promise.all([ended, stopped]);
  expect(response(text())).toEqual(ANSWERED);
});

it.each([HEAD, PARSED])('a request without a response at the end of the drain gets 503', async (head) => {
  const port = await open();
  pipeline.answer = () => new Promise(() => {});
  const { socket, ended, text } = await client(port);
  socket.write(head + BODY);
  await asked(1);
  await Promise.all([ended, stop(100)]);
  expect(response(text())).toEqual(REFUSED);
});

it.each([
  ['a head', HEAD.slice(0, 40), HEAD.slice(40) + BODY],
  ['a body', HEAD + BODY.slice(0, 5), BODY.slice(5)],
  ['a body that node:http reads', PARSED + BODY.slice(0, 5), BODY.slice(5)],
])('the rest of %s is waited for', async (_, first, rest) => {
  const port = await open();
  pipeline.answer = async () => ({ ...OK, headers: { ...OK.headers } });
  const [whole, cut] = [await client(port), await client(port)];
  for (const { socket } of [whole, cut]) socket.write(first);
  await pause(200);
  const stopped = stop();
  await pause(200);
  whole.socket.write(rest);
  await whole.ended;
  expect(response(whole.text())).toEqual(ANSWERED);
  await Promise.all([cut.ended, stopped]);
  expect(response(cut.text())).toEqual(REFUSED);
});

it('a response that a client reads slowly is sent completely', async () => {
  const port = await open();
  const { socket, text, ended } = await client(port);
  socket.pause();
  socket.write('GET /large HTTP/1.1\r\nhost: a\r\n\r\n');
  await pause(300);
  const stopped = stop(20_000);
  await pause(200);
  socket.resume();
  await Promise.all([ended, stopped]);
  expect(response(text()).body.length).toBe(LARGE.length);
});

it.each([false, true])('idle connections delay nothing (TLS: %s)', async (encrypted) => {
  const context = encrypted && OPENSSL ? selfSigned(await temporaryDirectory(), 'drain') : undefined;
  if (encrypted && context === undefined) return console.log(`skipped: ${NO_OPENSSL}`);
  const tls = context && { cert: await readFile(context.cert), key: await readFile(context.key) };
  const port = await open(tls);
  pipeline.answer = async () => ({ ...OK, headers: { ...OK.headers } });
  const [silent, plain, parsed] = [
    await client(port, encrypted),
    await client(port, encrypted),
    await client(port, encrypted),
  ];
  plain.socket.write(HEAD + BODY);
  parsed.socket.write(PARSED + BODY);
  for (const { text } of [plain, parsed])
    await eventually('an answer', 5_000, () => text().endsWith('{}') || undefined);
  const startedAt = performance.now();
  await Promise.all([stop(60_000), silent.ended, plain.ended, parsed.ended]);
  expect(performance.now() - startedAt).toBeLessThan(30_000);
});
