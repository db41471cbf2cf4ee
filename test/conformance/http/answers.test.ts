/**
 * The parts of an engine's response and of a body that reach the other side, in the form that the client's library
 * reads.
 */
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { promise } from '../../support/patience.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { dial, raw } from '../../support/raw.ts';
import { chatBody, MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';
import { Connection } from './connection.ts';

/** An operator would not choose such a name, but an engine may. */
const TWO_LINES = 'stand-in/two\nlines';

/** Rounded up to whole seconds, because a response names the number. */
const STALL_MS = Math.ceil(promise(5_000) / 1_000) * 1_000;

let cluster: TestCluster;
beforeAll(async () => {
  const gateway = { env: { BODY_STALL_MS: String(STALL_MS) } };
  cluster = await openTestCluster({ engine: { models: [MODEL, TWO_LINES] }, gateway });
});
afterAll(endAll);

const message = (more: object = {}) => ({ max_tokens: 8, ...chatBody({ tokens: 1 }), ...more });

it.each([
  ['an unknown model', 404, 'not_found_error', 'model_not_found', {}, message({ model: 'no/such' })],
  ['a wrong key', 401, 'authentication_error', 'invalid_api_key', { authorization: 'Bearer wrong' }, message()],
  ['a body that is no JSON', 400, 'invalid_request_error', 'invalid_json', {}, '{'],
])(
  '/v1/messages, %s: an error of the gateway’s own has the form that Anthropic’s clients read',
  async (_, status, type, code, headers, body) => {
    const response = await cluster.ask('/v1/messages', body, { headers });
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({ type: 'error', error: { type, code, message: expect.any(String) } });
  },
);

it('elsewhere it has OpenAI’s form', async () => {
  const response = await cluster.ask('/v1/chat/completions', chatBody({}, { model: 'no/such' }));
  const body: unknown = await response.json();
  expect(body).toMatchObject({ error: { code: 'model_not_found' } });
  expect(body).not.toHaveProperty('type');
});

it.each([
  '%0A',
  'a%0Ab',
  'a%0D%0Ab%0A',
  'org/a%0A/b',
  '%00',
  '%7F',
  '%E2%80%A8',
  '%E2%80%A9',
  '%FF',
  'a%C3',
  '%',
  '%2F',
  '%20',
])('a model’s name may have any bytes: /v1/models/%s is 404 with a key, 401 without, and read alone', async (name) => {
  const path = `/v1/models/${name}`;
  const known = await cluster.ask(path);
  expect(known.status).toBe(404);
  expect(await known.json()).toMatchObject({ error: { code: 'model_not_found', param: 'model' } });
  const stranger = await cluster.ask(path, undefined, { headers: { authorization: 'Bearer wrong' } });
  expect(stranger.status).toBe(401);
  expect(await stranger.json()).toMatchObject({ error: { code: 'invalid_api_key' } });
  const posted = await cluster.ask(path, '{}');
  expect(posted.status).toBe(405);
  expect(await posted.json()).toMatchObject({ error: { code: 'method_not_allowed' } });
});

it('a model with a line break in its name is told like any other', async () => {
  const told = await cluster.ask(`/v1/models/${encodeURIComponent(TWO_LINES)}`);
  expect(await told.json()).toMatchObject({ id: TWO_LINES, object: 'model', owned_by: 'lab' });
});

const posted = (body: Buffer | string, headers: Record<string, string> = {}) =>
  raw(`${cluster.base}/chat/completions`, {
    body,
    headers: { authorization: `Bearer ${cluster.key}`, 'content-type': 'application/json', ...headers },
  });

it('an engine’s redirect is not followed, and leads no client to where a provider likes', async () => {
  const engine = { status: 302, headers: { location: 'https://engine.example/elsewhere' } };
  const { status, headers } = await posted(JSON.stringify(chatBody(engine)));
  expect([status, headers.location]).toEqual([302, undefined]);
});

it('an engine’s page goes out as what no browser guesses about; JSON and events need no such word', async () => {
  const page = await posted(JSON.stringify(chatBody({ headers: { 'content-type': 'text/html' } })));
  expect(page.headers).toMatchObject({ 'content-type': 'text/html', 'x-content-type-options': 'nosniff' });
  const json = await posted(JSON.stringify(chatBody({ tokens: 1 })));
  expect(json.headers['x-content-type-options']).toBeUndefined();
});

it.each([
  ['a byte order mark', Buffer.from(`\ufeff${JSON.stringify({ model: 'm' })}`)],
  ['a byte that is no UTF-8', Buffer.from('{"model":"m","messages":"\xff"}', 'latin1')],
  ['half a letter', Buffer.from('{"model":"m","messages":"\xe2\x82"}', 'latin1')],
  ['an encoded surrogate', Buffer.from('{"model":"m","messages":"\xed\xa0\x80"}', 'latin1')],
])('a body with %s is 400 and reaches no engine', async (_, body) => {
  const before = cluster.engine.requests.length;
  const { status, body: answer } = await posted(body);
  expect(status).toBe(400);
  expect(JSON.parse(String(answer))).toMatchObject({ error: { code: 'invalid_json' } });
  expect(cluster.engine.requests.length).toBe(before);
});

it('a body of 300 KB with long letters everywhere is taken', async () => {
  const body = JSON.stringify(chatBody({ tokens: 1 }, { user: '😀é€x'.repeat(30_000) }));
  expect((await posted(Buffer.from(body))).status).toBe(200);
});

it('each answer names its request, its node and what it took', async () => {
  const { headers } = await posted(JSON.stringify(chatBody({ tokens: 1 })), { 'x-request-id': 'mine-1' });
  expect(headers).toMatchObject({
    'x-request-id': 'mine-1',
    'x-otela-node': expect.stringMatching(/^[a-z2-7]{26}$/),
    'x-otela-provider': 'lab',
    'x-otela-attempts': '1',
    'x-otela-served-model': MODEL,
    'server-timing': expect.stringContaining('dur='),
  });
});

/** The head of a request with a body of `bytes` bytes. */
function headOf(path: string, key: string, type: string, bytes: number): string {
  const { host } = new URL(cluster.gateway.url);
  return `POST ${path} HTTP/1.1\r\nhost: ${host}\r\nauthorization: Bearer ${key}\r\ncontent-type: ${type}\r\ncontent-length: ${bytes}\r\n\r\n`;
}

/** Reads until there is a whole JSON body. */
async function answerOf(socket: Socket): Promise<string> {
  let text = '';
  while (!text.endsWith('}')) {
    const [piece] = await once(socket, 'data');
    text += piece;
  }
  return text;
}

const BOUNDARY = 'b0undary';
const FORM = `multipart/form-data; boundary=${BOUNDARY}`;
const part = (name: string, text: string) =>
  `--${BOUNDARY}\r\ncontent-disposition: form-data; ${name}\r\n\r\n${text}\r\n`;

it('a body that stands still or drips is given up, whatever it is for; one that comes slowly is not', async () => {
  const { adminKey } = cluster.gateway;
  const json = 'application/json';
  const begun: [path: string, key: string, type: string, text: string, bytes?: number][] = [
    ['/v1/chat/completions', cluster.key, json, '{"model":"m"'],
    ['/v1/chat/completions', cluster.key, `${json}\r\nx-otela-model: ${MODEL}`, '{"model":"m"', 2 * 1024 * 1024],
    [
      '/v1/files',
      cluster.key,
      FORM,
      `--${BOUNDARY}\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n{`,
    ],
    ['/v1/files', cluster.key, FORM, part('name="purpose"', 'batch')],
    ['/v1/uploads', cluster.key, json, '{"filename":"a"'],
    ['/v1/batches', cluster.key, json, '{"endpoint"'],
    ['/admin/users', adminKey, json, '{"name":"x"'],
    ['/login/device', '', 'application/x-www-form-urlencoded', 'client_id=a'],
    ['/agent/admit', 'none', json, '{"protocol":1'],
  ];
  const all = [...begun, ...begun];
  const stalled = await Promise.all(all.map(() => dial(cluster.gateway.url)));
  const answers = stalled.map(answerOf);
  for (const [n, [path, key, type, text, bytes = 500]] of all.entries())
    stalled[n]?.on('error', () => {}).write(`${headOf(path, key, type, bytes)}${text}`);
  const drops = setInterval(() => {
    for (const socket of stalled.slice(begun.length)) socket.write(' ');
  }, STALL_MS / 10);
  const slow = await dial(cluster.gateway.url);
  const stored = answerOf(slow);
  const form = `${part('name="purpose"', 'user_data')}${part('name="file"; filename="slow"', 'x'.repeat(12_000))}--${BOUNDARY}--\r\n`;
  slow.write(headOf('/v1/files', cluster.key, FORM, form.length));
  for (let at = 0; at < form.length; at += 2_000) {
    slow.write(form.slice(at, at + 2_000));
    await new Promise((resolve) => setTimeout(resolve, STALL_MS / 5)); // the rate of the body
  }
  for (const [n, answer] of (await Promise.all(answers)).entries()) {
    expect(answer, all[n]?.[0]).toMatch(/^HTTP\/1\.1 408 /);
    expect(answer).toContain('"code":"request_timeout"');
    expect(answer).toContain(`${STALL_MS / 1_000} s`);
  }
  clearInterval(drops);
  expect(await stored).toMatch(/^HTTP\/1\.1 200 /);
  for (const socket of [...stalled, slow]) socket.destroy();
});

it('the log has one line for each failed request, and no stack', async () => {
  const before = cluster.gateway.process.output.length;
  const abort = new AbortController();
  const left = cluster.ask('/v1/chat/completions', chatBody({ delayMs: 5_000 }), { signal: abort.signal });
  await eventually('the engine has it', 5_000, () => (cluster.engine.requests.at(-1)?.finishedAt ? undefined : true));
  abort.abort();
  await expect(left).rejects.toThrow();
  const connection = await Connection.open(cluster.gateway.url);
  connection.send('CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n');
  await connection.answer();
  connection.close();
  await cluster.ask('/v1/chat/completions', '{');
  const said = cluster.gateway.process.output.slice(before);
  expect(said).not.toMatch(/\n\s+at |workerd\/|kj\/|\bstack: /);
});
