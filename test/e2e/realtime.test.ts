/** `/v1/realtime`: a client's WebSocket reaches an engine's WebSocket, both ways, with limits and errors. */
import { readFileSync } from 'node:fs';
import { type AddressInfo, connect } from 'node:net';
import { createServer } from 'node:tls';
import OpenAI from 'openai';
import { OpenAIRealtimeWS } from 'openai/realtime/ws';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import * as z from 'zod';
import { OPENSSL, selfSigned } from '../support/certificate.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../support/processes.ts';
import { MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster({
    nodes: 2,
    engine: { apiKey: 'the-engines-own-key' },
    agentEnv: { OTELA_ENGINE_KEY: 'the-engines-own-key' },
  });
  await cluster.gateway.admin('PUT', `models/${MODEL}`, { aliases: ['short-name'] });
});
afterAll(endAll);

const message = z.looseObject({ type: z.string() });
type Message = z.infer<typeof message>;

function until<T>(what: string, probe: () => T | Promise<T>): Promise<NonNullable<T>> {
  return eventually(what, 15_000, async () => (await probe()) || undefined);
}

/** A client that keeps what it received, and waits for more. */
class Client {
  readonly socket: WebSocket;
  readonly received: (Message | Buffer)[] = [];
  closed: { code: number; reason: string } | undefined;
  status: number | undefined;
  refusal = '';
  node: string | undefined;

  constructor(
    model: string | undefined,
    headers: Record<string, string> = { authorization: `Bearer ${cluster.key}` },
    protocols: string[] = [],
  ) {
    const query = model === undefined ? '' : `?model=${encodeURIComponent(model)}`;
    this.socket = new WebSocket(`${cluster.base.replace('http', 'ws')}/realtime${query}`, protocols, { headers });
    this.socket.on('upgrade', (response) => {
      this.node = String(response.headers['x-otela-node']);
    });
    this.socket.on('unexpected-response', (_request, response) => {
      this.status = response.statusCode;
      response.on('data', (bytes: Buffer) => {
        this.refusal += bytes.toString();
      });
      response.on('end', () => {
        this.closed = { code: 0, reason: 'refused' };
      });
    });
    this.socket.on('message', (data, isBinary) => {
      const bytes = Buffer.from(data as Buffer);
      this.received.push(isBinary || bytes[0] !== 123 ? bytes : message.parse(JSON.parse(bytes.toString())));
    });
    this.socket.on('error', () => {});
    this.socket.on('close', (code, reason) => {
      this.closed ??= { code, reason: reason.toString() };
    });
  }

  say(content: object): void {
    this.socket.send(JSON.stringify(content));
  }

  /** The first message of this type. */
  got(type: string): Promise<Message> {
    return until(`a message ${type}`, () =>
      this.received.find((one): one is Message => 'type' in one && one.type === type),
    );
  }

  end(): Promise<{ code: number; reason: string }> {
    return until('the end', () => this.closed);
  }
}

const codeOf = (text: string) =>
  z.object({ error: z.object({ code: z.string(), message: z.string() }) }).parse(JSON.parse(text)).error;

it('messages pass in order in both directions, as text and as bytes', async () => {
  const client = new Client(MODEL);
  expect(await client.got('session.created')).toMatchObject({ session: { model: MODEL } });
  for (let n = 0; n < 20; n++)
    client.say({ type: 'input_audio_buffer.append', audio: Buffer.alloc(30_000).toString('base64') });
  client.say({ type: 'input_audio_buffer.commit', final: true });
  expect(await client.got('transcription.done')).toMatchObject({
    text: 'eins zwei drei',
    usage: { prompt_tokens: 600_000 },
  });
  expect(client.received.slice(1, 4)).toMatchObject(['eins', ' zwei', ' drei'].map((delta) => ({ delta })));
  const bytes = Buffer.from([0, 1, 2, 255]);
  client.socket.send(bytes);
  expect(await until('bytes', () => client.received.find((one) => Buffer.isBuffer(one)))).toEqual(bytes);
  client.say({ type: 'test.close', code: 4001 });
  expect(await client.end()).toEqual({ code: 4001, reason: 'as asked' });
});

it('a browser sends its key as a subprotocol, which is not returned; a cookie does not count', async () => {
  const client = new Client(MODEL, {}, ['realtime', `openai-insecure-api-key.${cluster.key}`]);
  await client.got('session.created');
  expect(client.socket.protocol).toBe('realtime');
  client.socket.close();
  const seen = cluster.engines.flatMap(({ requests }) => requests).map(({ headers }) => JSON.stringify(headers));
  expect(seen.join()).not.toContain(cluster.key);
  const stranger = new Client(MODEL, { cookie: 'otela_session=anything' });
  await stranger.end();
  expect([stranger.status, codeOf(stranger.refusal).code]).toEqual([401, 'invalid_api_key']);
});

it('a refusal is an HTTP error in OpenAI’s envelope before the WebSocket opens', async () => {
  const cases: [model: string | undefined, status: number, code: string][] = [
    ['nothing', 404, 'model_not_found'],
    [undefined, 400, 'invalid_request'],
    ['x'.repeat(300), 400, 'invalid_request'],
  ];
  for (const [model, status, code] of cases) {
    const client = new Client(model);
    await client.end();
    expect([client.status, codeOf(client.refusal).code]).toEqual([status, code]);
  }
  const plain = await cluster.ask(`/v1/realtime?model=${encodeURIComponent(MODEL)}`);
  expect([plain.status, plain.headers.get('upgrade'), codeOf(await plain.text()).code]).toEqual([
    426,
    'websocket',
    'upgrade_required',
  ]);
});

it('the session’s model reaches the engine under its own name, and no other model may be named', async () => {
  const client = new Client('short-name');
  expect(await client.got('session.created')).toMatchObject({ session: { model: MODEL } });
  client.say({ type: 'session.update', model: 'short-name' });
  expect(await client.got('session.updated')).toMatchObject({ model: MODEL });
  client.socket.send('{"type":"session.update","mod\\u0065l":"another/model"}');
  expect(await client.got('error')).toMatchObject({ error: { code: 'model_not_allowed', param: 'model' } });
  client.say({ type: 'response.create' });
  await client.got('response.done'); // The session continues.
  client.socket.close();
});

it('the engine’s session ends when the client closes, and when its connection breaks', async () => {
  for (const leave of [(socket: WebSocket) => socket.close(1000), (socket: WebSocket) => socket.terminate()]) {
    const client = new Client(MODEL);
    await client.got('session.created');
    const running = () => cluster.engines.reduce((sum, engine) => sum + engine.running(), 0);
    expect(running()).toBe(1);
    leave(client.socket);
    await until('no session', () => running() === 0);
  }
});

it('a message above 1 MiB ends the session, from the client and from the engine', async () => {
  const client = new Client(MODEL);
  await client.got('session.created');
  client.socket.send('x'.repeat(1024 * 1024 + 1));
  expect(await client.end()).toMatchObject({ code: 1009 });
  const other = new Client(MODEL);
  await other.got('session.created');
  other.say({ type: 'test.send', bytes: 1024 * 1024 });
  await until('a long message', () => other.received.some((one) => Buffer.isBuffer(one) && one.length === 1024 * 1024));
  other.say({ type: 'test.send', bytes: 1024 * 1024 + 1 });
  expect(await other.got('error')).toMatchObject({ error: { code: 'upstream_error' } });
  expect(await other.end()).toMatchObject({ code: 1011 });
});

it('an engine that is killed ends the session with an error message', async () => {
  const client = new Client(MODEL);
  await client.got('session.created');
  for (const engine of cluster.engines) engine.hangUp();
  expect(await client.got('error')).toMatchObject({ error: { code: 'upstream_error' } });
  expect(await client.end()).toMatchObject({ code: 1011, reason: 'upstream_error' });
});

const created = z.object({ key: z.string(), id: z.string() });

it('a key’s limits apply, and a revoked key ends its sessions', async () => {
  const { key, id } = created.parse(
    await cluster.gateway.admin('POST', 'keys', { name: 'k', limits: { concurrent_requests: 1 }, models: [MODEL] }),
  );
  const headers = { authorization: `Bearer ${key}` };
  const client = new Client(MODEL, headers);
  await client.got('session.created');
  const second = new Client(MODEL, headers);
  await second.end();
  expect([second.status, codeOf(second.refusal).code]).toEqual([429, 'rate_limit_exceeded']);
  await cluster.gateway.admin('DELETE', `keys/${id}`);
  expect(await client.got('error')).toMatchObject({ error: { code: 'invalid_api_key' } });
  expect(await client.end()).toMatchObject({ code: 1008 });
});

const usage = z.object({
  data: z.array(z.object({ prompt_tokens: z.number(), completion_tokens: z.number(), requests: z.number() })),
});

it('the tokens of all responses of a session count in one usage record', async () => {
  const { key, id } = created.parse(await cluster.gateway.admin('POST', 'keys', { name: 'counted' }));
  const client = new Client(MODEL, { authorization: `Bearer ${key}` });
  await client.got('session.created');
  for (let n = 1; n <= 3; n++) {
    client.say({ type: 'response.create' });
    await until(
      'a response',
      () => client.received.filter((one) => 'type' in one && one.type === 'response.done').length === n,
    );
  }
  client.socket.close();
  const row = await until('the usage', async () => {
    const { data } = usage.parse(await cluster.gateway.admin('GET', `usage?group_by=key&key=${id}`));
    return data.find(({ requests }) => requests > 0);
  });
  expect(row).toMatchObject({ prompt_tokens: 21, completion_tokens: 15, requests: 1 });
});

it('a client that reads nothing does not make the gateway keep everything', async () => {
  const client = new Client(MODEL);
  await client.got('session.created');
  client.socket.pause();
  for (let n = 0; n < 40; n++) client.say({ type: 'test.send', bytes: 1024 * 1024 });
  const engine = cluster.engines.find((one) => one.running() === 1);
  // All requests reach the engine; its answers wait for credit, and arrive when the client reads again.
  await until('all requests', () => (engine?.requests.at(-1)?.bodyBytes ?? 0) >= 40 * 30);
  client.socket.resume();
  await until('all messages', () => client.received.filter((one) => Buffer.isBuffer(one)).length === 40);
  client.socket.close();
});

/** A proxy with TLS before the gateway, as sites have one. Returns its port. */
async function tlsProxy(): Promise<number> {
  const { cert, key } = selfSigned(await temporaryDirectory(), 'gateway');
  const server = createServer({ cert: readFileSync(cert), key: readFileSync(key) }, (client) => {
    const gateway = connect(Number(new URL(cluster.base).port), '127.0.0.1');
    client.on('error', () => gateway.destroy());
    gateway.on('error', () => client.destroy());
    client.pipe(gateway).pipe(client);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => void server.close());
  return (server.address() as AddressInfo).port;
}

it.skipIf(!OPENSSL)('OpenAI’s own client opens a session through TLS', async () => {
  const client = new OpenAI({ apiKey: cluster.key, baseURL: `https://127.0.0.1:${await tlsProxy()}/v1` });
  const session = new OpenAIRealtimeWS({ model: MODEL, options: { rejectUnauthorized: false } }, client);
  const types: string[] = [];
  session.on('event', ({ type }) => types.push(type));
  session.on('error', ({ message }) => types.push(message));
  await until('the session', () => types.includes('session.created'));
  session.send({ type: 'response.create' });
  await until('a response', () => types.includes('response.done'));
  session.close();
  await until('the engine to be let go', () => cluster.engines.every((one) => one.running() === 0));
  expect(types).toEqual(['session.created', 'response.done']);
});
