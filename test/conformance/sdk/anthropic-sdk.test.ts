/** Anthropic's own client on /v1/messages. */
import Anthropic from '@anthropic-ai/sdk';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { endAll } from '../../support/processes.ts';
import { MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

const OTHER = 'stand-in/model-2';
let cluster: TestCluster;
const user = [{ role: 'user' as const, content: 'Say something.' }];

beforeAll(async () => {
  cluster = await openTestCluster({ engine: { models: [MODEL, OTHER] } });
});
afterAll(endAll);

const client = (more: object = {}) =>
  new Anthropic({ baseURL: cluster.gateway.url, authToken: cluster.key, apiKey: null, maxRetries: 0, ...more });

it('gets a message with its usage', async () => {
  const message = await client().messages.create({ model: MODEL, max_tokens: 5, messages: user });
  expect(message.content).toEqual([{ type: 'text', text: 'This is a stand-in engine' }]);
  expect(message.stop_reason).toBe('max_tokens');
  expect(message._request_id).toMatch(/^[\w-]{8,}$/);
  expect(message.usage.output_tokens).toBe(5);
});

it('streams a message', async () => {
  const stream = client().messages.stream({ model: MODEL, max_tokens: 5, messages: user });
  const words: string[] = [];
  stream.on('text', (word) => words.push(word));
  const message = await stream.finalMessage();
  expect(words).toHaveLength(5);
  expect(message.usage.output_tokens).toBe(5);
});

it('counts the tokens of a message', async () => {
  const { input_tokens } = await client({ apiKey: cluster.key, authToken: null }).messages.countTokens({
    model: MODEL,
    messages: user,
  });
  expect(input_tokens).toBeGreaterThan(5);
});

it('lists the models, page by page, and raises its own error for an unknown one', async () => {
  const models: string[] = [];
  for await (const { id, type, display_name, created_at } of client().models.list({ limit: 1 })) {
    models.push(id);
    expect([type, typeof display_name]).toEqual(['model', 'string']);
    expect(Date.parse(created_at)).toBeGreaterThan(0);
  }
  expect(models).toEqual([MODEL, OTHER]);
  expect(await client().models.retrieve(MODEL)).toMatchObject({ type: 'model', id: MODEL });
  await expect(client().models.retrieve('no/such')).rejects.toBeInstanceOf(Anthropic.NotFoundError);
  await expect(client().models.retrieve('no/such')).rejects.toMatchObject({
    error: { type: 'error', error: { type: 'not_found_error' } },
  });
  await expect(client({ authToken: 'sk-wrong' }).models.list()).rejects.toBeInstanceOf(Anthropic.AuthenticationError);
});

it('brings its key in x-api-key, as it does by default', async () => {
  const message = await client({ apiKey: cluster.key, authToken: null }).messages.create({
    model: MODEL,
    max_tokens: 2,
    messages: user,
  });
  expect(message.content).toEqual([{ type: 'text', text: 'This is' }]);
});

it('raises its own error classes for a wrong key and an unknown model', async () => {
  const wrong = client({ authToken: 'sk-wrong' }).messages.create({ model: MODEL, max_tokens: 1, messages: user });
  await expect(wrong).rejects.toBeInstanceOf(Anthropic.AuthenticationError);
  const unknown = client().messages.create({ model: 'nobody/serves-this', max_tokens: 1, messages: user });
  await expect(unknown).rejects.toBeInstanceOf(Anthropic.NotFoundError);
  await expect(unknown).rejects.toMatchObject({ requestID: expect.stringMatching(/^[\w-]{8,}$/) });
});

it('raises where a stream breaks off, and does not take the half for the whole', async () => {
  const broken = { stand_in: { fault: 'reset', afterTokens: 3, tokens: 20 } };
  const stream = client().messages.stream({ model: MODEL, max_tokens: 20, messages: user, ...broken });
  await expect(stream.finalMessage()).rejects.toBeInstanceOf(Anthropic.APIError);
});
