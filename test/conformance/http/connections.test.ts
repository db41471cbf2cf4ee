/** Connections: valid heads, pipelining, and which clients get a connection if one client takes all that it can. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { postBytes } from '../../support/raw.ts';
import { chatBody, openTestCluster, stillServes, type TestCluster } from '../../support/test-cluster.ts';
import { Connection } from './connection.ts';
import { quiet } from './judge.ts';

const MIB = 1024 * 1024;
/** The number in docs/deploy.md. */
const CONNECTIONS_MAX = 4_096;

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster();
});
afterAll(endAll);

const open = (from?: string) => Connection.open(cluster.gateway.url, from);
const authorization = () => ({ authorization: `Bearer ${cluster.key}` });
const post = (body: unknown, headers: Record<string, string> = {}) =>
  postBytes(`${cluster.gateway.url}/v1/chat/completions`, { ...authorization(), ...headers }, body);

it('a head of 1 MiB is told 431, and the client can read that', async () => {
  const connection = await open();
  connection.send(post(chatBody(), { 'x-large': 'x'.repeat(MIB) }));
  expect((await connection.answer()).status).toBe(431);
  await connection.closed();
});

it('ten thousand headers are told 431', async () => {
  const connection = await open();
  const headers = Object.fromEntries(Array.from({ length: 10_000 }, (_, n) => [`x-${n}`, '1']));
  connection.send(post(chatBody({ tokens: 1 }), headers));
  expect((await connection.answer()).status).toBe(431);
  connection.close();
});

it('a target of 100 KB is told 414 or 431', async () => {
  const connection = await open();
  connection.send(`GET /${'x'.repeat(100_000)} HTTP/1.1\r\nhost: h\r\n\r\n`);
  expect([414, 431]).toContain((await connection.answer()).status);
});

it('a head of 12 KB is served: tokens of institutions are long', async () => {
  const connection = await open();
  connection.send(post(chatBody({ tokens: 1 }), { cookie: 'x'.repeat(12_000) }));
  expect((await connection.answer()).status).toBe(200);
  connection.close();
});

it.each(['CONNECT example.com:443', 'CONNECT 127.0.0.1:80'])('%s without a key is a client’s error', async (line) => {
  const connection = await open();
  connection.send(`${line} HTTP/1.1\r\nhost: example.com\r\n\r\n`);
  const { status } = await connection.answer();
  expect(status).toBeGreaterThanOrEqual(400);
  expect(status).toBeLessThan(500);
  connection.close();
  expect(await stillServes(cluster)).toBe(200);
});

it('a client that asks to go on with HTTP/2 goes on with HTTP/1.1', async () => {
  const connection = await open();
  connection.send(
    post(chatBody({ tokens: 1 }), { connection: 'upgrade, http2-settings', upgrade: 'h2c', 'http2-settings': '' }),
  );
  expect((await connection.answer()).status).toBe(200);
  connection.close();
});

it('a client that waits for 100 Continue is told to go on', async () => {
  const connection = await open();
  const request = post(chatBody({ tokens: 1 }), { expect: '100-continue' });
  const bodyAt = request.indexOf('\r\n\r\n') + 4;
  connection.send(request.slice(0, bodyAt));
  await eventually('100', 5_000, () => (connection.text.startsWith('HTTP/1.1 100') ? true : undefined));
  connection.send(request.slice(bodyAt));
  expect((await connection.answer()).status).toBe(200);
  connection.close();
});

it('HTTP/1.0 is answered, and its connection closed', async () => {
  const connection = await open();
  connection.send('GET /healthz HTTP/1.0\r\nhost: h\r\n\r\n');
  await connection.closed();
  expect(connection.answers.map(({ status }) => status)).toEqual([200]);
});

it('Connection: close is obeyed', async () => {
  const connection = await open();
  connection.send(post(chatBody({ tokens: 1 }), { connection: 'close' }));
  expect((await connection.answer()).status).toBe(200);
  await connection.closed();
});

it('pipelined requests are answered in their order, streams among them', async () => {
  const connection = await open();
  const unary = post(chatBody({ tokens: 1 }));
  const stream = post(chatBody({ tokens: 5 }, { stream: true }));
  connection.send(unary + stream + unary + stream);
  await connection.answer(4);
  const kinds = connection.answers.map(({ status, headers }) => `${status} ${headers['content-type']?.split(';')[0]}`);
  expect(kinds).toEqual([
    '200 application/json',
    '200 text/event-stream',
    '200 application/json',
    '200 text/event-stream',
  ]);
  connection.close();
});

it.each([
  ['CONNECT', 'CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n', 405],
  [
    'an upgrade',
    'GET /agent/connect HTTP/1.1\r\nhost: h\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
    426,
  ],
  [
    'an upgrade that two parsers read in two ways',
    'GET / HTTP/1.1\r\nhost: h\r\nhost: i\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n',
    400,
  ],
])(
  '%s behind a request is refused behind its answer: else a client takes the refusal for it',
  async (_, text, status) => {
    const connection = await open();
    connection.send(post(chatBody({ delayMs: 500, tokens: 1 }), { te: 'trailers' }) + text);
    await connection.closed();
    expect(connection.answers.map((answer) => answer.status)).toEqual([200, status]);
  },
);

it('nonsense behind a request that streams neither stands inside its answer nor is taken for it', async () => {
  const connection = await open();
  connection.send(`${post(chatBody({ tokens: 20, tokensPerSecond: 20 }, { stream: true }))}NONSENSE\r\n\r\n`);
  await connection.closed();
  expect(connection.answers.map(({ status }) => status)).toEqual([200, 400]);
  expect(connection.answers[0]?.body).not.toContain('HTTP/1.1');
});

it('nonsense that comes in the middle of a stream does not stand inside the answer', async () => {
  const connection = await open();
  connection.send(post(chatBody({ tokens: 20, tokensPerSecond: 20 }, { stream: true })));
  await eventually('the first token', 10_000, () => (connection.text.includes('data:') ? true : undefined));
  connection.send('NONSENSE\r\n\r\n');
  await connection.closed();
  const end = connection.text.indexOf('\r\n0\r\n\r\n');
  const stream = end < 0 ? connection.text : connection.text.slice(0, end);
  expect(stream.slice(1)).not.toContain('HTTP/1.1');
});

it('a request that comes byte by byte is answered', async () => {
  const connection = await open();
  for (const byte of post(chatBody({ tokens: 1 }))) connection.send(byte);
  expect((await connection.answer()).status).toBe(200);
  connection.close();
});

/**
 * A stream that outlasts every idle timeout behind the public socket, and a request that is cut in two around it. The
 * second half looks like a complete request.
 */
it('a request whose beginning came during a stream is answered, or its connection ends: its rest is never a request of its own', async () => {
  const before = cluster.engine.requests.length;
  const inner = post(chatBody({ tokens: 1 }, { user: 'smuggled' }));
  const beginning = 'GET /nothing HTTP/1.1\r\nx-rest: ';
  const stream = JSON.stringify(chatBody({ tokens: 18, tokensPerSecond: 1 }, { stream: true }));
  const chunk = `${stream.length.toString(16)}\r\n${stream}\r\n0\r\n\r\n`;
  const head = post('', { 'transfer-encoding': 'chunked' }).replace(/content-length: 0\r\n/, '');
  const streams = [post(stream), head + chunk];
  await Promise.all(
    streams.map(async (request) => {
      const connection = await open();
      connection.send(request + beginning);
      await eventually('the end of the stream', 30_000, () => (connection.text.includes('[DONE]') ? true : undefined));
      connection.send(inner);
      await quiet(connection, 1_000);
      connection.close();
    }),
  );
  const executed = cluster.engine.requests.slice(before).filter(({ bodyStart }) => bodyStart.includes('smuggled'));
  expect(executed).toEqual([]);
});

/** Opens as many connections as it gets, and sends nothing on them. */
async function takeAll(from: string): Promise<{ close(): void }> {
  const taken: Connection[] = [];
  while (taken.length < CONNECTIONS_MAX + 600) {
    const opened = await Promise.allSettled(Array.from({ length: 200 }, () => open(from)));
    for (const one of opened) if (one.status === 'fulfilled') taken.push(one.value);
  }
  return {
    close: () => {
      for (const one of taken) one.close();
    },
  };
}

it('one client without a key takes all the connections it can: another address, a valid key and a new agent are served', async () => {
  const silent = await takeAll('127.0.0.66');
  try {
    const asked = Array.from({ length: 5 }, () => cluster.ask('/v1/chat/completions', chatBody({ tokens: 1 })));
    expect((await Promise.all(asked)).map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
    await startAgent({ gateways: [cluster.gateway.url], token: cluster.token, engineUrl: cluster.engine.url });
    await cluster.gateway.serving(2, 10_000);
  } finally {
    silent.close();
  }
});

it('behind one address that is used up, silent connections make room for those that ask with a valid key', async () => {
  const silent = await takeAll('127.0.0.1');
  try {
    await eventually('an answer', 5_000, async () => {
      const response = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 1 }));
      return response.status === 200 ? true : undefined;
    });
  } finally {
    silent.close();
  }
});
