/** Bad input from clients: each one gives a clear error, and a good request right after it still works. */
import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { endAll, eventually } from '../../support/processes.ts';
import { dial, postBytes } from '../../support/raw.ts';
import {
  chatBody,
  envelopeOf,
  MODEL,
  openTestCluster,
  stillServes,
  type TestCluster,
} from '../../support/test-cluster.ts';

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster();
});
afterAll(endAll);
afterEach(async () => expect(await stillServes(cluster)).toBe(200));

async function refused(
  body: unknown,
  status: number,
  code: string,
  init: RequestInit = {},
  path = '/v1/chat/completions',
) {
  const before = cluster.engine.requests.length;
  const response = await cluster.ask(path, body, init);
  expect(response.status).toBe(status);
  expect(response.headers.get('content-type')).toContain('application/json');
  const envelope = await envelopeOf(response);
  expect(envelope.code).toBe(code);
  expect(cluster.engine.requests.length, 'nothing reached the engine').toBe(before);
  return { response, envelope };
}

const MALFORMED: [string, string][] = [
  ['a lone brace', '{'],
  ['nothing', ''],
  ['an array', '[]'],
  ['a string', '"model"'],
  ['a trailing comma', `{"model":"${MODEL}",}`],
  ['two values', `{"model":"${MODEL}"}{}`],
  ['a cut string', `{"model":"${MODEL}`],
  ['a bare word', `{"model":${MODEL}}`],
];

it.each(MALFORMED)('malformed JSON, %s, is 400', async (_, body) => {
  await refused(body, 400, 'invalid_json');
});

it('no model is 400 and names the parameter', async () => {
  const { envelope } = await refused({ messages: [] }, 400, 'invalid_request');
  expect(envelope.param).toBe('model');
});

it('a model that is no string is 400', async () => {
  await refused({ model: 7, messages: [] }, 400, 'invalid_request');
});

it.each([
  ['model', `{"model":"${MODEL}","messages":[],"model":"x"}`],
  ['stream', `{"model":"${MODEL}","stream":true,"messages":[],"stream":false}`],
  ['an escaped model', `{"model":"${MODEL}","messages":[],"mod\\u0065l":"x"}`],
])('a doubled key, %s, is 400: engines take the last one', async (_, body) => {
  await refused(body, 400, 'duplicate_key');
});

it('a doubled key inside a message is nobody’s business', async () => {
  const response = await cluster.ask(
    '/v1/chat/completions',
    `{"model":"${MODEL}","messages":[{"role":"user","role":"user","content":"x"}]}`,
  );
  expect(response.status).toBe(200);
});

it.each([
  ['that is to be looked into', {}],
  ['that is not', { 'x-otela-model': MODEL }],
])('a compressed body %s is 415: no engine would know that it is', async (_, more) => {
  const headers = { 'content-encoding': 'gzip', ...more };
  const { response } = await refused('', 415, 'unsupported_media_type', {
    headers,
    body: gzipSync(JSON.stringify(chatBody())),
  });
  expect(response.headers.get('accept-encoding')).toBe('identity');
});

it('an unknown model is 404 and says its name', async () => {
  const { envelope } = await refused(chatBody({}, { model: 'nobody/serves-this' }), 404, 'model_not_found');
  expect(envelope.message).toContain('nobody/serves-this');
});

it('what a client asked for is said again as far as its first 128 characters, whole ones', async () => {
  const long = `${'n'.repeat(127)}😀${'n'.repeat(4_000)}`;
  const model = `/v1/models/${encodeURIComponent(long)}`;
  const nothing = `/v1/${'n'.repeat(4_000)}`;
  for (const [path, get, post] of [
    [model, 404, 405],
    [nothing, 404, 404],
  ] as const) {
    for (const [method, status] of [
      ['GET', get],
      ['POST', post],
    ] as const) {
      const response = await cluster.ask(path, undefined, { method });
      expect(response.status).toBe(status);
      const { message } = await envelopeOf(response);
      expect(message).toMatch(/n{100}…/);
      expect(message.length).toBeLessThan(200);
      expect(message.isWellFormed()).toBe(true);
    }
  }
});

it('no key, a wrong key and a key in another scheme are 401', async () => {
  for (const authorization of ['', 'Bearer sk-wrong', `Basic ${cluster.key}`, 'Bearer', `Bearer ${cluster.key}x`]) {
    await refused(chatBody(), 401, 'invalid_api_key', { headers: { authorization } });
  }
});

it('an agent’s join token is no key', async () => {
  await refused(chatBody(), 401, 'invalid_api_key', { headers: { authorization: `Bearer ${cluster.token}` } });
});

it('an unknown path is 404, a wrong method 405 with what is allowed, both in OpenAI’s form', async () => {
  const unknown = await cluster.ask('/v1/nothing/here', {});
  expect(unknown.status).toBe(404);
  await envelopeOf(unknown);
  const wrong = await cluster.ask('/v1/chat/completions');
  expect(wrong.status).toBe(405);
  expect(wrong.headers.get('allow')).toContain('POST');
  await envelopeOf(wrong);
  const models = await cluster.ask('/v1/models', {});
  expect([models.status, models.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
  await envelopeOf(models);
});

it('bytes that are no HTTP get an error and a closed socket, and nothing else is disturbed', async () => {
  const socket = await dial(cluster.gateway.url);
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.on('error', () => undefined).resume();
  socket.write(Buffer.from('\u0016\u0003\u0001\u0002\u0000\u0001\u0000 not HTTP at all\r\n\r\n', 'latin1'));
  await closed;
});

it('a client that says a longer body than it sends, and leaves, disturbs nothing', async () => {
  const socket = await dial(cluster.gateway.url);
  socket.on('error', () => undefined).resume();
  const headers = { authorization: `Bearer ${cluster.key}`, 'content-length': '5000' };
  socket.end(postBytes(`${cluster.base}/chat/completions`, headers, chatBody()));
  await new Promise((resolve) => socket.once('close', resolve));
});

it('a known model with nothing serving and nothing to wait for is 503 no_capacity with a retry-after of at most 60', async () => {
  const other = await openTestCluster({ engine: { models: ['gone/soon'] }, gateway: { queue: false } });
  await other.agents[0]?.stop();
  const response = await eventually('no capacity', 10_000, async () => {
    const answer = await other.ask('/v1/chat/completions', { model: 'gone/soon', messages: [] });
    return answer.status === 503 ? answer : undefined;
  });
  expect((await envelopeOf(response)).code).toBe('no_capacity');
  const seconds = Number(response.headers.get('retry-after'));
  expect(seconds).toBeGreaterThan(0);
  expect(seconds).toBeLessThanOrEqual(60);
});

it.each([
  ['a header for requirements', { headers: { 'x-otela-require': 'gpu=GH200' } }, {}],
  ['metadata for requirements', {}, { metadata: { otela_require: 'gpu=GH200' } }],
])('%s that no node meets are told what there is instead, and the prompt goes nowhere', async (_, init, more) => {
  const { envelope } = await refused({ ...chatBody(), ...more }, 412, 'requirement_not_met', init);
  expect(envelope.message).toMatch(new RegExp(`'${MODEL}'.*gpu=unknown`));
});

it.each([
  ['an unknown one', { headers: { 'x-otela-require': 'colour=red' } }, {}],
  ['one without a value', { headers: { 'x-otela-require': 'gpu=' } }, {}],
  ['one of metadata', {}, { metadata: { otela_require: 'context>=a lot' } }],
  ['a preference', { headers: { 'x-otela-prefer': 'tier' } }, {}],
])('a requirement that cannot be read, %s, is refused and never overlooked', async (_, init, more) => {
  await refused({ ...chatBody(), ...more }, 400, 'invalid_requirement', init);
});

it('two requests at once with the same x-request-id each get their own answer', async () => {
  const init = { headers: { 'x-request-id': 'the-same-for-both' } };
  const ask = (tokens: number) => cluster.ask('/v1/chat/completions', chatBody({ tokens, delayMs: 300 }), init);
  const [one, two] = await Promise.all([ask(1), ask(3)]);
  const usage = async (response: Response) => JSON.parse(await response.text()).usage.completion_tokens as number;
  expect([await usage(one), await usage(two)]).toEqual([1, 3]);
  expect(cluster.engine.requests.at(-1)?.headers['x-request-id']).toBe('the-same-for-both');
});

it('a body of 33 MiB is taken, and one of a byte more is not', async () => {
  const text = JSON.stringify(chatBody({ tokens: 1 }));
  const of = async (bytes: number) => (await cluster.ask('/v1/chat/completions', text.padEnd(bytes))).status;
  const limit = 33 * 1024 * 1024;
  expect([await of(limit), await of(limit + 1)]).toEqual([200, 413]);
});

it.each([
  ['too large by its length', 413, 'request_too_large', 40, {}],
  ['too large without a length', 413, 'request_too_large', 40, { chunked: true }],
  ['of a wrong key', 401, 'invalid_api_key', 8, { key: 'sk-otela-wrong' }],
])('a client that still sends its body, %s, reads the error and not a reset', async (_, status, code, mib, how) => {
  const body = Buffer.alloc(mib * 1024 * 1024, ' ');
  const stream = () => new Blob([body]).stream() as unknown as ReadableStream<Uint8Array>;
  const chunked = 'chunked' in how;
  for (let n = 0; n < 3; n++) {
    const response = await fetch(`${cluster.base}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${'key' in how ? how.key : cluster.key}`, 'content-type': 'application/json' },
      body: chunked ? stream() : body,
      ...(chunked ? { duplex: 'half' } : {}),
    });
    expect(response.status).toBe(status);
    expect((await envelopeOf(response)).code).toBe(code);
  }
});
