/** Translated requests at a mock engine over HTTP, asked by the clients of OpenAI and Anthropic. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { EngineClient } from '../../../agent/attempts/engine-client.ts';
import { findEndpoint } from '../../../shared/openai/endpoints.ts';
import { type Engine, startEngine } from '../../support/engine.ts';
import { openingFrame } from '../../support/tunnel/hand-gateway.ts';

const MODEL = 'm';
const FIVE = 'This is a stand-in engine';
const user = [{ role: 'user' as const, content: 'Say something.' }];
let engine: Engine;
let client: EngineClient;

beforeAll(async () => {
  engine = await startEngine({ models: [MODEL] });
  const translates = ['messages', 'responses'] as const;
  client = new EngineClient({ origin: engine.url, pathPrefix: '', translates });
});
afterAll(async () => {
  await client.close();
  await engine.close();
});

/** Sends a client's request through the agent's engine client. The end of a broken answer is an error of the body. */
async function throughAgent(url: string | URL | Request, init: RequestInit = {}): Promise<Response> {
  const endpoint = findEndpoint('POST', new URL(String(url)).pathname);
  if (endpoint === undefined || 'methodNotAllowed' in endpoint) throw new Error('no such endpoint');
  const body = Buffer.from(String(init.body));
  const streaming = /"stream":true/.test(body.toString());
  const open = openingFrame(1, { endpoint: endpoint.id, streaming });
  return await new Promise((resolve, reject) => {
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    const writer = writable.getWriter();
    writer.closed.catch(() => undefined);
    client.call(open, endpoint, body, body.length, {
      onHead: (status, headers) =>
        resolve(new Response(readable, { status, headers: headers.map(([a, b]) => [a, b]) })),
      onData: (chunk) => void writer.write(chunk).catch(() => undefined),
      onEnd: () => void writer.close().catch(() => undefined),
      onError: (code, message) => {
        const error = new Error(`${code}: ${message}`);
        reject(error);
        writer.abort(error).catch(() => undefined);
      },
    });
  });
}

const options = { apiKey: 'k', maxRetries: 0, fetch: throughAgent };
const openai = new OpenAI({ ...options, baseURL: 'http://agent/v1' });
const anthropic = new Anthropic({ ...options, baseURL: 'http://agent' });
const asked = { model: MODEL, input: 'Say something.', max_output_tokens: 5 };

it('answers OpenAI’s client, whole and as a stream', async () => {
  const { data, response } = await openai.responses.create(asked).withResponse();
  expect([data.output_text, data.status, data.usage?.output_tokens]).toEqual([FIVE, 'incomplete', 5]);
  expect(response.headers.get('x-otela-translated')).toBe('chat.completions');
  const stream = openai.responses.stream(asked);
  const words: string[] = [];
  stream.on('response.output_text.delta', ({ delta }) => words.push(delta));
  const final = await stream.finalResponse();
  expect([words.join(''), final.output_text, final.usage?.output_tokens]).toEqual([FIVE, FIVE, 5]);
  expect(new Set(engine.requests.map(({ url }) => url))).toEqual(new Set(['/v1/chat/completions']));
});

it('answers Anthropic’s client, whole and as a stream with a tool', async () => {
  const whole = await anthropic.messages.create({ model: MODEL, max_tokens: 5, messages: user });
  expect([whole.content, whole.stop_reason]).toEqual([[{ type: 'text', text: FIVE }], 'max_tokens']);
  const input_schema = { type: 'object' as const, properties: { city: { type: 'string' } } };
  const tools = [{ name: 'weather', input_schema }];
  const message = await anthropic.messages
    .stream({ model: MODEL, max_tokens: 50, messages: user, tools })
    .finalMessage();
  expect(message.content).toMatchObject([{ type: 'tool_use', name: 'weather', input: { city: 'Bern' } }]);
  expect([message.stop_reason, message.usage.input_tokens > 0]).toEqual(['tool_use', true]);
});

it('refuses what it cannot translate without asking the engine', async () => {
  const before = engine.requests.length;
  await expect(openai.responses.create({ ...asked, store: true })).rejects.toMatchObject({
    status: 400,
    param: 'store',
  });
  const assistant = [{ role: 'assistant' as const, content: 'So' }];
  const begun = anthropic.messages.create({ model: MODEL, max_tokens: 5, messages: assistant });
  await expect(begun).rejects.toMatchObject({ status: 400, error: { type: 'error' } });
  const long = openai.responses.create({ ...asked, input: 'x'.repeat(17 * 2 ** 20) });
  await expect(long).rejects.toMatchObject({ status: 413, code: 'request_too_large' });
  expect(engine.requests.length).toBe(before);
});

it('keeps the engine’s refusal in the form of the client', async () => {
  engine.control({ status: 422 }, 1);
  const refused = anthropic.messages.create({ model: MODEL, max_tokens: 5, messages: user });
  const error = { type: 'invalid_request_error', message: 'status 422 was asked for' };
  await expect(refused).rejects.toMatchObject({ status: 422, error: { type: 'error', error } });
});

it.each(['garbage-events', 'end', 'reset', 'close'] as const)(
  'fails like a broken engine if it sends %s',
  async (fault) => {
    engine.control({ fault, afterTokens: 2, tokens: 9 }, 1);
    const types: string[] = [];
    const read = async () => {
      for await (const { type } of await openai.responses.create({ ...asked, max_output_tokens: 50, stream: true }))
        types.push(type);
    };
    await expect(read()).rejects.toThrow();
    expect(types).not.toContain('response.completed');
    expect((await openai.responses.create(asked)).output_text).toBe(FIVE);
  },
);

it('asks an engine again that refuses the wish for its counts', async () => {
  const before = engine.requests.length;
  engine.control({ refusesUsage: true }, 2);
  // A fresh client does not know yet that this engine takes the options.
  const known = client;
  client = new EngineClient({ ...known.target });
  const final = await openai.responses.stream(asked).finalResponse();
  await client.close();
  client = known;
  expect([final.output_text, engine.requests.length - before]).toEqual([FIVE, 2]);
});
