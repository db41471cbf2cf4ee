/**
 * OpenAI's own client, unmodified, first directly at the engine and then through gateway, tunnel and agent: it must see
 * no difference.
 */
import dns from 'node:dns';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { sealedFetch } from '../../../clients/seal/index.ts';
import { endAll } from '../../support/processes.ts';
import { type ProviderRoot, providerRoot } from '../../support/provider-root.ts';
import { MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

let cluster: TestCluster;
let root: ProviderRoot;
const clients: Record<string, () => OpenAI> = {
  'straight at the engine': () => new OpenAI({ baseURL: `${cluster.engine.url}/v1`, apiKey: 'none', maxRetries: 0 }),
  'through the gateway': () => new OpenAI({ baseURL: cluster.base, apiKey: cluster.key, maxRetries: 0 }),
  'sealed, through the gateway': () =>
    new OpenAI({
      baseURL: cluster.base,
      apiKey: cluster.key,
      maxRetries: 0,
      fetch: sealedFetch({ pins: { [root.provider]: root.pin } }),
    }),
};
const user = [{ role: 'user' as const, content: 'Say something.' }];
const weather = {
  type: 'function' as const,
  function: {
    name: 'weather',
    description: 'The weather at a place',
    parameters: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } } },
  },
};

beforeAll(async () => {
  root = await providerRoot('lab');
  cluster = await openTestCluster({ agentArgs: ['--delegate-file', root.delegateFile] });
});
afterAll(endAll);

describe.each(Object.keys(clients))('the openai SDK %s', (name) => {
  const client = () => (clients[name] ?? (() => new OpenAI()))();

  it('gets a chat completion with its usage', async () => {
    const answer = await client().chat.completions.create({ model: MODEL, messages: user, max_tokens: 5 });
    expect(answer.choices[0]?.message.content).toBe('This is a stand-in engine');
    expect(answer.choices[0]?.finish_reason).toBe('length');
    expect(answer.usage?.completion_tokens).toBe(5);
    expect(answer.system_fingerprint).toBe('otela-stand-in');
  });

  it('streams a chat completion, without a usage chunk that it did not ask for', async () => {
    const stream = await client().chat.completions.create({
      model: MODEL,
      messages: user,
      max_tokens: 5,
      stream: true,
    });
    let words = '';
    for await (const chunk of stream) {
      expect(chunk.choices).toHaveLength(1);
      expect(chunk.usage ?? null).toBeNull();
      words += chunk.choices[0]?.delta.content ?? '';
    }
    expect(words).toBe('This is a stand-in engine');
  });

  it('gets the usage chunk of a stream that it asked for, once and last', async () => {
    const stream = await client().chat.completions.create({
      model: MODEL,
      messages: user,
      max_tokens: 5,
      stream: true,
      stream_options: { include_usage: true },
    });
    const usages = [];
    let last: OpenAI.ChatCompletionChunk | undefined;
    for await (const chunk of stream) {
      if (chunk.usage) usages.push(chunk.usage.completion_tokens);
      last = chunk;
    }
    expect(usages).toEqual([5]);
    expect(last?.choices).toEqual([]);
  });

  it('gets a tool call, streamed and whole, and words after the tool has answered', async () => {
    const whole = await client().chat.completions.create({ model: MODEL, messages: user, tools: [weather] });
    const call = whole.choices[0]?.message.tool_calls?.[0];
    expect(whole.choices[0]?.finish_reason).toBe('tool_calls');
    expect(call).toMatchObject({
      type: 'function',
      function: { name: 'weather', arguments: '{"city":"Bern","days":7}' },
    });
    const runner = client().chat.completions.stream({ model: MODEL, messages: user, tools: [weather] });
    const streamed = await runner.finalChatCompletion();
    expect(streamed.choices[0]?.message.tool_calls?.[0]).toMatchObject({
      function: { arguments: '{"city":"Bern","days":7}' },
    });
    const after = await client().chat.completions.create({
      model: MODEL,
      max_tokens: 2,
      tools: [weather],
      messages: [
        ...user,
        {
          role: 'assistant',
          tool_calls: [{ id: 'c', type: 'function', function: { name: 'weather', arguments: '{}' } }],
        },
        { role: 'tool', tool_call_id: 'c', content: 'sunny' },
      ],
    });
    expect(after.choices[0]?.message.content).toBe('This is');
  });

  it('gets completions, whole and streamed', async () => {
    const whole = await client().completions.create({ model: MODEL, prompt: 'Once', max_tokens: 3 });
    expect(whole.choices[0]?.text).toBe('This is a');
    let words = '';
    for await (const chunk of await client().completions.create({
      model: MODEL,
      prompt: 'Once',
      max_tokens: 3,
      stream: true,
    })) {
      words += chunk.choices[0]?.text ?? '';
    }
    expect(words).toBe('This is a');
  });

  it('gets embeddings, as the base64 it asks for itself and as floats', async () => {
    const packed = await client().embeddings.create({ model: MODEL, input: ['one', 'two'] });
    const plain = await client().embeddings.create({ model: MODEL, input: ['one', 'two'], encoding_format: 'float' });
    expect(packed.data).toHaveLength(2);
    expect(packed.data[0]?.embedding).toEqual(plain.data[0]?.embedding);
    expect(packed.data[0]?.embedding).not.toEqual(packed.data[1]?.embedding);
  });

  it('gets responses, whole and streamed to response.completed', async () => {
    const whole = await client().responses.create({ model: MODEL, input: 'hello', max_output_tokens: 4 });
    expect(whole.output_text).toBe('This is a stand-in');
    const seen = [];
    let usage: OpenAI.Responses.ResponseUsage | undefined;
    for await (const event of await client().responses.create({
      model: MODEL,
      input: 'hello',
      max_output_tokens: 4,
      stream: true,
    })) {
      seen.push(event.type);
      if (event.type === 'response.completed') usage = event.response.usage;
    }
    expect(seen.filter((type) => type === 'response.output_text.delta')).toHaveLength(4);
    expect(seen.at(-1)).toBe('response.completed');
    expect(usage?.output_tokens).toBe(4);
  });

  it('gets speech as bytes and sends a recording to be transcribed', async () => {
    const speech = await client().audio.speech.create({ model: MODEL, voice: 'alloy', input: 'hello' });
    expect((await speech.arrayBuffer()).byteLength).toBe(48_000);
    const file = new File([new Uint8Array(100_000)], 'a.wav', { type: 'audio/wav' });
    const heard = await client().audio.transcriptions.create({ model: MODEL, file });
    expect(heard.text).toBe('The stand-in engine hears nothing.');
  });

  it('lists models and retrieves one whose name has a slash', async () => {
    const ids = [];
    for await (const model of client().models.list()) ids.push(model.id);
    expect(ids).toEqual([MODEL]);
    if (name === 'through the gateway') expect((await client().models.retrieve(MODEL)).id).toBe(MODEL);
  });

  it('raises NotFoundError for a model that nobody serves', async () => {
    const asked = client().chat.completions.create({ model: 'nobody/serves-this', messages: user });
    await expect(asked).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  });

  it('raises BadRequestError where the engine answers 400, with the engine’s own words', async () => {
    const asked = client().chat.completions.create({ model: MODEL, messages: user, ...{ stand_in: { status: 400 } } });
    await expect(asked).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining('status 400 was asked for'),
    });
  });
});

it('an unknown key raises AuthenticationError with our code', async () => {
  const client = new OpenAI({ baseURL: cluster.base, apiKey: 'sk-not-a-key', maxRetries: 0 });
  const asked = client.chat.completions.create({ model: MODEL, messages: user });
  await expect(asked).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
  await expect(asked).rejects.toMatchObject({ status: 401, code: 'invalid_api_key' });
});

it('an unknown model has our code, and the error carries the request id', async () => {
  const client = new OpenAI({ baseURL: cluster.base, apiKey: cluster.key, maxRetries: 0 });
  const asked = client.chat.completions.create({ model: 'nobody/serves-this', messages: user });
  await expect(asked).rejects.toMatchObject({ code: 'model_not_found', requestID: expect.stringMatching(/\S/) });
});

it('the SDK takes the other address of a name whose first is dead, without a try of its own', async () => {
  // Nothing listens on 127.0.0.2, and the gateway listens only on 127.0.0.1.
  const addresses = ['127.0.0.2', '127.0.0.1'].map((address) => ({ address, family: 4 }));
  const lookup = vi
    .spyOn(dns, 'lookup')
    .mockImplementation(((_: string, options: object, call: Looked) =>
      'all' in options && options.all === true
        ? call(null, addresses)
        : call(null, '127.0.0.2', 4)) as unknown as typeof dns.lookup);
  try {
    const baseURL = `http://two-addresses.test:${new URL(cluster.base).port}/v1`;
    const client = new OpenAI({ baseURL, apiKey: cluster.key, maxRetries: 0 });
    const answer = await client.chat.completions.create({ model: MODEL, messages: user });
    expect(answer.choices[0]?.message.content).toContain('stand-in');
    expect(lookup).toHaveBeenCalled();
  } finally {
    lookup.mockRestore();
  }
});

type Looked = (error: null, address: string | dns.LookupAddress[], family?: number) => void;
