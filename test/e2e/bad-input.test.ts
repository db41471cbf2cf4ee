/** Bad input from clients, engines and agents: each a clear error, and a good request right after it still works. */
import { connect } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { chatBody, envelopeOf, type House, MODEL, openHouse } from '../support/house.ts';
import { endAll, eventually } from '../support/processes.ts';
import { dial, postBytes, raw } from '../support/raw.ts';

let house: House;
beforeAll(async () => {
  house = await openHouse();
});
afterAll(endAll);
afterEach(async () => {
  house.engine.control({}, 1);
  const good = await house.ask('/v1/chat/completions', chatBody({ tokens: 1 }));
  expect(good.status, await good.text()).toBe(200);
});

async function refused(
  body: unknown,
  status: number,
  code: string,
  init: RequestInit = {},
  path = '/v1/chat/completions',
) {
  const before = house.engine.requests.length;
  const response = await house.ask(path, body, init);
  expect(response.status).toBe(status);
  expect(response.headers.get('content-type')).toContain('application/json');
  const envelope = await envelopeOf(response);
  expect(envelope.code).toBe(code);
  expect(house.engine.requests.length, 'nothing reached the engine').toBe(before);
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
  const response = await house.ask(
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
  for (const path of [`/v1/models/${encodeURIComponent(long)}`, `/v1/${'n'.repeat(4_000)}`]) {
    for (const init of [{}, { method: 'POST' }]) {
      const response = await house.ask(path, undefined, init);
      expect(response.status).toBe(404);
      const { message } = await envelopeOf(response);
      expect(message).toMatch(/n{100}…/);
      expect(message.length).toBeLessThan(200);
      expect(message.isWellFormed()).toBe(true);
    }
  }
});

it('no key, a wrong key and a key in another scheme are 401', async () => {
  for (const authorization of ['', 'Bearer sk-wrong', `Basic ${house.key}`, 'Bearer', `Bearer ${house.key}x`]) {
    await refused(chatBody(), 401, 'invalid_api_key', { headers: { authorization } });
  }
});

it('an agent’s join token is no key', async () => {
  await refused(chatBody(), 401, 'invalid_api_key', { headers: { authorization: `Bearer ${house.token}` } });
});

it('a revoked key is 401 within 5 s everywhere', async () => {
  const made: unknown = await house.gateway.admin('POST', 'keys', { name: 'short lived' });
  if (typeof made !== 'object' || made === null || !('key' in made && 'id' in made)) throw new Error('no key');
  const headers = { authorization: `Bearer ${made.key}` };
  expect((await house.ask('/v1/chat/completions', chatBody({ tokens: 1 }), { headers })).status).toBe(200);
  await house.gateway.admin('DELETE', `keys/${made.id}`);
  await eventually('the revoked key is refused', 5_000, async () => {
    const response = await house.ask('/v1/chat/completions', chatBody({ tokens: 1 }), { headers });
    await response.text();
    return response.status === 401 ? true : undefined;
  });
});

it('an unknown path is 404, a wrong method 405 with what is allowed, both in OpenAI’s form', async () => {
  const unknown = await house.ask('/v1/nothing/here', {});
  expect(unknown.status).toBe(404);
  await envelopeOf(unknown);
  const wrong = await house.ask('/v1/chat/completions');
  expect(wrong.status).toBe(405);
  expect(wrong.headers.get('allow')).toContain('POST');
  await envelopeOf(wrong);
});

it('bytes that are no HTTP get an error and a closed socket, and nothing else is disturbed', async () => {
  const socket = await dial(house.gateway.url);
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.on('error', () => undefined).resume();
  socket.write(Buffer.from('\u0016\u0003\u0001\u0002\u0000\u0001\u0000 not HTTP at all\r\n\r\n', 'latin1'));
  await closed;
});

it('a client that says a longer body than it sends, and leaves, disturbs nothing', async () => {
  const socket = await dial(house.gateway.url);
  socket.on('error', () => undefined).resume();
  const headers = { authorization: `Bearer ${house.key}`, 'content-length': '5000' };
  socket.end(postBytes(`${house.base}/chat/completions`, headers, chatBody()));
  await new Promise((resolve) => socket.once('close', resolve));
});

it('an engine that closes before its answer is 502 upstream_error after all attempts', async () => {
  house.engine.control({ fault: 'reset-before-head' });
  const response = await house.ask('/v1/chat/completions', chatBody());
  expect(response.status).toBe(502);
  expect((await envelopeOf(response)).code).toBe('upstream_error');
});

it('an engine that answers bytes which are no HTTP is 502', async () => {
  house.engine.control({ fault: 'garbage' });
  const response = await house.ask('/v1/chat/completions', chatBody());
  expect(response.status).toBe(502);
  expect((await envelopeOf(response)).code).toBe('upstream_error');
});

it.each(['reset', 'close'] as const)(
  'an unary answer that breaks off (%s) in its body is 502, never half an answer',
  async (fault) => {
    house.engine.control({ fault });
    const response = await house.ask('/v1/chat/completions', chatBody());
    expect(response.status).toBe(502);
    expect((await envelopeOf(response)).code).toBe('upstream_error');
  },
);

it.each(['reset', 'close', 'end'] as const)(
  'a chat stream that breaks off (%s) ends with an error event and without [DONE]',
  async (fault) => {
    const response = await house.ask(
      '/v1/chat/completions',
      chatBody({ fault, afterTokens: 5, tokens: 50, tokensPerSecond: 50 }, { stream: true }),
    );
    expect(response.status).toBe(200);
    const text = await response.text();
    const events = text.split('\n\n').filter((event) => event.startsWith('data: '));
    expect(text).not.toContain('[DONE]');
    expect(text).toContain(' stand-in');
    expect(JSON.parse(events.at(-1)?.slice('data: '.length) ?? '')).toMatchObject({
      error: { code: 'upstream_error' },
    });
  },
);

it('a messages stream that breaks off ends with Anthropic’s error event', async () => {
  const body = chatBody(
    { fault: 'reset', afterTokens: 5, tokens: 50, tokensPerSecond: 50 },
    { stream: true, max_tokens: 50 },
  );
  const text = await (await house.ask('/v1/messages', body)).text();
  expect(text).toMatch(/event: error\ndata: \{"type":"error","error":\{.*\}\}\n\n$/);
  expect(text).not.toContain('message_stop');
});

it('an engine that never answers is 504 upstream_timeout after the model’s own limit, and is told to stop', async () => {
  await house.gateway.admin('PUT', `models/${MODEL}`, { first_byte_ms: 1_500, stall_ms: 1_500 });
  house.engine.control({ fault: 'never' });
  const response = await eventually('the limit is known everywhere', 15_000, async () => {
    const answer = await house.ask('/v1/chat/completions', chatBody(), { signal: AbortSignal.timeout(6_000) });
    return answer.status === 504 ? answer : undefined;
  });
  expect((await envelopeOf(response)).code).toBe('upstream_timeout');
  const last = house.engine.requests.at(-1);
  await house.engine.when((request) => request.id === last?.id && request.abortedAt !== undefined, 2_000, 'the abort');
});

it('an engine that stalls in mid-stream ends as upstream_timeout in the stream, without [DONE]', async () => {
  const response = await house.ask(
    '/v1/chat/completions',
    chatBody({ fault: 'stall', afterTokens: 3, tokens: 50 }, { stream: true }),
  );
  const text = await response.text();
  expect(text).not.toContain('[DONE]');
  expect(text).toContain('upstream_timeout');
  await house.gateway.admin('DELETE', `models/${MODEL}`);
});

it('an agent with a wrong token is told so and ends with 69', async () => {
  const agent = await startAgent({ gateways: [house.gateway.url], token: 'otj-wrong', engineUrl: house.engine.url });
  expect(await agent.end(15_000)).toMatchObject({ code: 69 });
  expect(agent.output).toMatch(/401|refused|token/i);
  expect(agent.output).not.toContain('otj-wrong');
  expect(await house.gateway.nodes()).toHaveLength(1);
});

it('a consumer’s key does not admit an agent', async () => {
  const agent = await startAgent({ gateways: [house.gateway.url], token: house.key, engineUrl: house.engine.url });
  expect(await agent.end(15_000)).toMatchObject({ code: 69 });
});

it('the tunnel’s door refuses plain requests and upgrades without a token', async () => {
  const plain = await raw(`${house.gateway.url}/agent/connect`);
  expect([400, 401, 426]).toContain(plain.status);
  const { hostname, port } = new URL(house.gateway.url);
  const socket = connect(Number(port), hostname);
  socket.write(
    `GET /agent/connect HTTP/1.1\r\nHost: ${hostname}:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
      'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
  );
  const first = await new Promise<string>((resolve) => socket.once('data', (bytes) => resolve(bytes.toString())));
  socket.destroy();
  expect(first).toMatch(/^HTTP\/1\.1 4\d\d /);
});

it('a known model with nothing serving and nothing to wait for is 503 no_capacity with a retry-after of at most 60', async () => {
  const other = await openHouse({ engine: { models: ['gone/soon'] }, gateway: { queue: false } });
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
  expect(envelope.message).toContain(`requires: '${MODEL}' is served by 1 node that does not publish gpu.`);
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
  const ask = (tokens: number) => house.ask('/v1/chat/completions', chatBody({ tokens, delayMs: 300 }), init);
  const [one, two] = await Promise.all([ask(1), ask(3)]);
  const usage = async (response: Response) => JSON.parse(await response.text()).usage.completion_tokens as number;
  expect([await usage(one), await usage(two)]).toEqual([1, 3]);
  expect(house.engine.requests.at(-1)?.headers['x-request-id']).toBe('the-same-for-both');
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
    const response = await fetch(`${house.base}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${'key' in how ? how.key : house.key}`, 'content-type': 'application/json' },
      body: chunked ? stream() : body,
      ...(chunked ? { duplex: 'half' } : {}),
    });
    expect(response.status).toBe(status);
    expect((await envelopeOf(response)).code).toBe(code);
  }
});
