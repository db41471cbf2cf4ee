/**
 * Bodies and responses byte for byte: the engine gets exactly what the client sent, and the client gets exactly what
 * the engine sent.
 */
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { endAll } from '../../support/processes.ts';
import { patternSha256, patternStream, type RawAnswer, raw } from '../../support/raw.ts';
import { MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

let cluster: TestCluster;
const sha256 = (text: string) => createHash('sha256').update(text).digest('hex');
const headers = () => ({ authorization: `Bearer ${cluster.key}`, 'content-type': 'application/json' });

beforeAll(async () => {
  cluster = await openTestCluster();
});
afterAll(endAll);

async function both(path: string, atEngine: string, body: string): Promise<{ direct: RawAnswer; through: RawAnswer }> {
  const direct = await raw(`${cluster.engine.url}${atEngine}`, {
    body,
    headers: { 'content-type': 'application/json' },
  });
  const through = await raw(`${cluster.gateway.url}${path}`, { body, headers: headers() });
  return { direct, through };
}

const chat = { model: MODEL, messages: [{ role: 'user', content: 'Grüezi, 世界 🌍' }] };
const CASES: [string, string, string, object][] = [
  ['chat', '/v1/chat/completions', '/v1/chat/completions', chat],
  ['a chat stream', '/v1/chat/completions', '/v1/chat/completions', { ...chat, stream: true }],
  [
    'a chat stream that asks for usage',
    '/v1/chat/completions',
    '/v1/chat/completions',
    { ...chat, stream: true, stream_options: { include_usage: true } },
  ],
  [
    'a chat stream that asks for no usage',
    '/v1/chat/completions',
    '/v1/chat/completions',
    { ...chat, stream: true, stream_options: { include_usage: false } },
  ],
  [
    'a chat stream with null as its options',
    '/v1/chat/completions',
    '/v1/chat/completions',
    { ...chat, stream: true, stream_options: null },
  ],
  ['a completions stream', '/v1/completions', '/v1/completions', { model: MODEL, prompt: 'x', stream: true }],
  ['completions', '/v1/completions', '/v1/completions', { model: MODEL, prompt: 'x' }],
  ['responses', '/v1/responses', '/v1/responses', { model: MODEL, input: 'x' }],
  ['a responses stream', '/v1/responses', '/v1/responses', { model: MODEL, input: 'x', stream: true }],
  ['messages', '/v1/messages', '/v1/messages', { ...chat, max_tokens: 9 }],
  ['a messages stream', '/v1/messages', '/v1/messages', { ...chat, max_tokens: 9, stream: true }],
  ['count_tokens', '/v1/messages/count_tokens', '/v1/messages/count_tokens', chat],
  ['embeddings', '/v1/embeddings', '/v1/embeddings', { model: MODEL, input: ['a', 'b'] }],
  [
    'rerank, which lives at the engine’s root',
    '/v1/rerank',
    '/rerank',
    { model: MODEL, query: 'q', documents: ['a', 'b'] },
  ],
  ['score', '/v1/score', '/score', { model: MODEL, text_1: 'a', text_2: ['b', 'c'] }],
  ['classify', '/v1/classify', '/classify', { model: MODEL, input: ['a', 'b'] }],
  ['tokenize', '/v1/tokenize', '/tokenize', { model: MODEL, prompt: 'grüezi' }],
  ['detokenize', '/v1/detokenize', '/detokenize', { model: MODEL, tokens: [104, 105] }],
  ['pooling', '/v1/pooling', '/pooling', { model: MODEL, input: ['a', 'b'] }],
  ['moderations', '/v1/moderations', '/v1/moderations', { model: MODEL, input: 'a' }],
  ['images', '/v1/images/generations', '/v1/images/generations', { model: MODEL, prompt: 'a lake', n: 2 }],
  [
    'an image stream',
    '/v1/images/generations',
    '/v1/images/generations',
    { model: MODEL, prompt: 'a lake', stream: true },
  ],
  ['speech', '/v1/audio/speech', '/v1/audio/speech', { model: MODEL, input: 'hi', voice: 'x' }],
];

it('rerank and score of SGLang, which has them under /v1 alone', async () => {
  const other = await openTestCluster({ engine: { form: 'sglang' } });
  for (const [path, body] of [
    ['/v1/rerank', { model: MODEL, query: 'q', documents: ['a', 'b'] }],
    ['/v1/score', { model: MODEL, text_1: 'a', text_2: ['b', 'c'] }],
    ['/v1/classify', { model: MODEL, input: ['a', 'b'] }],
  ] as const) {
    const answer = await other.ask(path, body);
    expect([path, answer.status, await answer.text()]).toEqual([path, 200, expect.stringContaining('"usage"')]);
  }
});

it.each(CASES)(
  '%s: the same status, content type and bytes as straight from the engine',
  async (_, path, atEngine, body) => {
    const { direct, through } = await both(path, atEngine, JSON.stringify({ ...body, stand_in: { id: 'same' } }));
    expect(direct.status).toBe(200);
    expect(through.status).toBe(direct.status);
    expect(through.headers['content-type']).toBe(direct.headers['content-type']);
    expect(through.body.toString('latin1')).toBe(direct.body.toString('latin1'));
    expect(through.complete).toBe(true);
  },
);

it('events with CRLF line ends pass as they are', async () => {
  const body = JSON.stringify({ ...chat, stream: true, stand_in: { id: 'same', eol: 'crlf' } });
  const { direct, through } = await both('/v1/chat/completions', '/v1/chat/completions', body);
  expect(direct.body.includes('\r\n\r\n')).toBe(true);
  expect(through.body.toString()).toBe(direct.body.toString());
});

it('events that are no JSON pass as they are', async () => {
  const body = JSON.stringify({ ...chat, stream: true, stand_in: { id: 'same', fault: 'garbage-events', tokens: 3 } });
  const { direct, through } = await both('/v1/chat/completions', '/v1/chat/completions', body);
  expect(through.body.toString()).toBe(direct.body.toString());
});

it('a tool call’s stream passes as it is', async () => {
  const tools = [
    {
      type: 'function',
      function: { name: 'f', parameters: { type: 'object', properties: { a: { type: 'string' } } } },
    },
  ];
  const body = JSON.stringify({ ...chat, stream: true, tools, stand_in: { id: 'same' } });
  const { direct, through } = await both('/v1/chat/completions', '/v1/chat/completions', body);
  expect(through.body.toString()).toBe(direct.body.toString());
});

it.each([400, 404, 422, 429, 500, 503])('the engine’s own %i passes with its body untouched', async (status) => {
  const body = JSON.stringify({ ...chat, stand_in: { id: 'same', status } });
  const { direct, through } = await both('/v1/chat/completions', '/v1/chat/completions', body);
  expect(through.status).toBe(status);
  expect(through.body.toString()).toBe(direct.body.toString());
});

it('an unary body reaches the engine byte for byte, odd spacing, unknown keys and escapes included', async () => {
  const body = `\n{ "temperature" : 1.0e0 , "x\\u0041":[ ] ,"messages" :[{"role":"user","content":"\\ud83c\\udf0d \\/ é"}],\t"model": "${MODEL}" }\n `;
  const answer = await raw(`${cluster.base}/chat/completions`, { body, headers: headers() });
  expect(answer.status).toBe(200);
  const seen = cluster.engine.requests.at(-1);
  expect(seen?.bodySha256).toBe(sha256(body));
  expect(seen?.bodyBytes).toBe(Buffer.byteLength(body));
});

it('a stream’s body reaches the engine byte for byte where the client asked for usage itself', async () => {
  const body = JSON.stringify({
    stream: true,
    stream_options: { include_usage: true },
    messages: chat.messages,
    model: MODEL,
  });
  await raw(`${cluster.base}/chat/completions`, { body, headers: headers() });
  expect(cluster.engine.requests.at(-1)?.bodySha256).toBe(sha256(body));
});

it('a stream’s body gains the wish for usage and nothing else where the client did not ask', async () => {
  const body = { model: MODEL, messages: chat.messages, stream: true };
  await raw(`${cluster.base}/chat/completions`, { body: JSON.stringify(body), headers: headers() });
  const seen: unknown = JSON.parse(cluster.engine.requests.at(-1)?.bodyStart ?? '');
  expect(seen).toEqual({ ...body, stream_options: { include_usage: true } });
});

it('other keys of stream_options stay when the wish for usage is put inside', async () => {
  const body = {
    model: MODEL,
    messages: chat.messages,
    stream: true,
    stream_options: { include_usage: null, other: [1] },
  };
  await raw(`${cluster.base}/chat/completions`, { body: JSON.stringify(body), headers: headers() });
  const seen: unknown = JSON.parse(cluster.engine.requests.at(-1)?.bodyStart ?? '');
  expect(seen).toMatchObject({ stream_options: { include_usage: true, other: [1] } });
});

it.each(['audio/transcriptions', 'images/edits', 'images/variations', 'videos/sync'])(
  'a multipart upload to %s reaches the engine byte for byte, its boundary included',
  async (path) => {
    const boundary = 'a-boundary-of-our-own';
    const part = (name: string, value: string) =>
      `--${boundary}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`;
    const file = `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="ä.wav"\r\nContent-Type: audio/wav\r\n\r\n`;
    // The file is first, so the model is found after it.
    const body = `${file}${'\u0000\u0001RIFF'.repeat(40_000)}\r\n${part('model', MODEL)}${part('language', 'de')}--${boundary}--\r\n`;
    const type = `multipart/form-data; boundary=${boundary}`;
    const answer = await raw(`${cluster.base}/${path}`, {
      body,
      headers: { ...headers(), 'content-type': type },
    });
    expect(answer.status, answer.body.toString()).toBe(200);
    const seen = cluster.engine.requests.at(-1);
    expect(seen?.bodySha256).toBe(sha256(body));
    expect(seen?.headers['content-type']).toBe(type);
  },
);

it('events arrive as they are made, not together at the end', async () => {
  const body = JSON.stringify({ ...chat, stream: true, stand_in: { tokens: 20, tokensPerSecond: 20 } });
  const answer = await raw(`${cluster.base}/chat/completions`, { body, headers: headers() });
  const [first = 0] = answer.arrivals;
  const last = answer.arrivals.at(-1) ?? 0;
  expect(answer.arrivals.length).toBeGreaterThanOrEqual(5);
  expect(last - first).toBeGreaterThan(600);
});

it('a JSON body of 32 MiB passes, one of 34 MiB is 413 in OpenAI’s form', async () => {
  const frame = JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: '' }] });
  const limit = 32 * 1024 * 1024;
  const fill = (total: number) => frame.replace('""', `"${'x'.repeat(total - frame.length)}"`);
  const body = fill(limit);
  const passes = await raw(`${cluster.base}/chat/completions`, { body, headers: headers() });
  expect(passes.status, passes.body.toString()).toBe(200);
  expect(cluster.engine.requests.at(-1)?.bodySha256).toBe(sha256(body));
  const refused = await raw(`${cluster.base}/chat/completions`, { body: fill(34 * 1024 * 1024), headers: headers() });
  expect(refused.status).toBe(413);
  expect(JSON.parse(refused.body.toString())).toMatchObject({
    error: { code: 'request_too_large', type: 'invalid_request_error' },
  });
});

it('the limit also holds for a body that does not tell its length', async () => {
  const answer = await raw(`${cluster.base}/chat/completions`, {
    body: patternStream(40 * 1024 * 1024),
    headers: { ...headers(), 'transfer-encoding': 'chunked' },
  });
  expect(answer.status).toBe(413);
});

it('an opaque body of 128 MiB streams to the engine and is never looked into', async () => {
  const size = 128 * 1024 * 1024;
  cluster.engine.control({ bytes: 100 }, 1);
  const answer = await raw(`${cluster.base}/audio/transcriptions`, {
    body: patternStream(size),
    headers: {
      ...headers(),
      'content-type': 'application/octet-stream',
      'x-otela-model': MODEL,
      'content-length': size,
    },
  });
  expect(answer.status, answer.body.toString('latin1').slice(0, 300)).toBe(200);
  const seen = cluster.engine.requests.at(-1);
  expect(seen?.bodyBytes).toBe(size);
  expect(seen?.bodySha256).toBe(patternSha256(size));
});

it('an answer of 128 MiB streams to the client', async () => {
  const size = 128 * 1024 * 1024;
  const body = JSON.stringify({ model: MODEL, input: 'x', voice: 'x', stand_in: { bytes: size } });
  const answer = await raw(`${cluster.base}/audio/speech`, { body, headers: headers() });
  expect(answer.bytes).toBe(size);
  expect(answer.sha256).toBe(patternSha256(size));
  expect(answer.complete).toBe(true);
});
