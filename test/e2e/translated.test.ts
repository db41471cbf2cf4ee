/** An agent that answers /v1/responses and /v1/messages from an engine's /v1/chat/completions, with the real clients. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { endAll } from '../support/processes.ts';
import { MODEL, openTestCluster, stillServes, type TestCluster } from '../support/test-cluster.ts';

let cluster: TestCluster;
const user = [{ role: 'user' as const, content: 'Say something.' }];
const FIVE = 'This is a stand-in engine';
const parameters = { type: 'object', properties: { city: { type: 'string' } }, additionalProperties: false };

beforeAll(async () => {
  cluster = await openTestCluster({ agentArgs: ['--translate', 'messages,responses'] });
});
afterAll(endAll);

const openai = () => new OpenAI({ baseURL: cluster.base, apiKey: cluster.key, maxRetries: 0 });
const anthropic = () =>
  new Anthropic({ baseURL: cluster.gateway.url, authToken: cluster.key, apiKey: null, maxRetries: 0 });
const paths = () => [
  ...new Set(cluster.engine.requests.filter(({ method }) => method === 'POST').map(({ url }) => url)),
];

it('answers OpenAI’s client, whole and as a stream', async () => {
  const asked = { model: MODEL, input: 'Say something.', max_output_tokens: 5 };
  const { data, response } = await openai().responses.create(asked).withResponse();
  expect([data.output_text, data.status]).toEqual([FIVE, 'incomplete']);
  expect(data.usage).toMatchObject({ output_tokens: 5 });
  expect(response.headers.get('x-otela-translated')).toBe('chat.completions');

  const stream = openai().responses.stream(asked);
  const words: string[] = [];
  stream.on('response.output_text.delta', ({ delta }) => words.push(delta));
  const final = await stream.finalResponse();
  expect([words.length, final.output_text]).toEqual([5, FIVE]);
  expect(final.usage).toMatchObject({ output_tokens: 5 });
  expect(paths()).toEqual(['/v1/chat/completions']);
});

it('lets OpenAI’s client call a tool and give its result back', async () => {
  const tools = [{ type: 'function' as const, name: 'weather', parameters, strict: true }];
  const input: OpenAI.Responses.ResponseInput = [...user];
  const first = await openai().responses.create({ model: MODEL, input, tools });
  const calls = first.output.filter((item) => item.type === 'function_call');
  const [call] = calls;
  expect(call).toMatchObject({ name: 'weather', arguments: '{"city":"Bern"}' });
  input.push(...calls, { type: 'function_call_output', call_id: call?.call_id ?? '', output: 'sunny' });
  const second = await openai().responses.create({ model: MODEL, input, tools, max_output_tokens: 5 });
  expect(second.output_text).toBe(FIVE);
});

it('answers Anthropic’s client, whole and as a stream, with a tool', async () => {
  const asked = { model: MODEL, max_tokens: 5, messages: user };
  const whole = await anthropic().messages.create(asked);
  expect([whole.content, whole.stop_reason]).toEqual([[{ type: 'text', text: FIVE }], 'max_tokens']);
  expect(whole.usage.output_tokens).toBe(5);
  const tools = [{ name: 'weather', input_schema: { ...parameters, type: 'object' as const } }];
  const called = await anthropic()
    .messages.stream({ ...asked, max_tokens: 50, tools })
    .finalMessage();
  expect(called.content).toMatchObject([{ type: 'tool_use', name: 'weather', input: { city: 'Bern' } }]);
  expect(called.stop_reason).toBe('tool_use');
  expect(called.usage.input_tokens).toBeGreaterThan(0);
});

it('refuses what it cannot translate, in the form of each client', async () => {
  const stored = openai().responses.create({ model: MODEL, input: 'x', store: true });
  await expect(stored).rejects.toMatchObject({ status: 400, param: 'store' });
  const document = {
    type: 'document' as const,
    source: { type: 'text' as const, media_type: 'text/plain' as const, data: 'x' },
  };
  const refused = anthropic().messages.create({
    model: MODEL,
    max_tokens: 5,
    messages: [{ role: 'user', content: [document] }],
  });
  await expect(refused).rejects.toMatchObject({
    status: 400,
    error: { type: 'error', error: { type: 'invalid_request_error' } },
  });
});

it('keeps the engine’s error, and survives an engine that sends junk', async () => {
  cluster.engine.control({ status: 422 }, 1);
  const refused = anthropic().messages.create({ model: MODEL, max_tokens: 5, messages: user });
  await expect(refused).rejects.toMatchObject({ status: 422, error: { type: 'error' } });
  for (const fault of ['garbage-events', 'end', 'reset'] as const) {
    cluster.engine.control({ fault, afterTokens: 2, tokens: 9 }, 3);
    const stream = await cluster.ask('/v1/responses', { model: MODEL, input: 'x', stream: true });
    const text = await stream.text();
    expect(text).toContain('upstream_error');
    expect(text).not.toContain('response.completed');
    expect(await stillServes(cluster)).toBe(200);
  }
});
