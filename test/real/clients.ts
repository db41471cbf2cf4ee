/** More features of OpenTela's and OpenAI's clients: sealed prompts, and batches. */
import assert from 'node:assert/strict';
import OpenAI, { toFile } from 'openai';
import { sealedFetch } from '../../clients/seal/index.ts';
import { eventually } from '../support/processes.ts';
import { hear } from '../support/streams.ts';
import { newKey, type Place, usageOf } from './place.ts';
import { chat } from './questions.ts';

const SETTLED_MS = 10_000;
const BATCH_MS = 120_000;
const LINES = 8;

/** Sealed to the engine's node, and streamed: the same text as unsealed. */
export async function sealed({ gateway, model, root }: Place): Promise<string> {
  const { id, key } = await newKey(gateway);
  const seal = sealedFetch({ pins: { [root.provider]: root.pin } });
  const ask = async (through: typeof fetch) => {
    const response = await through(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(chat(model, { stream: true, stream_options: { include_usage: true } })),
    });
    return { how: response.headers.get('x-otela-sealed'), heard: hear(await response.text()) };
  };
  const [open, closed] = [await ask(fetch), await ask(seal)];
  assert.equal(closed.how, 'pinned');
  assert.deepEqual([closed.heard.text, closed.heard.finishes], [open.heard.text, open.heard.finishes]);
  assert.deepEqual([closed.heard.dones, closed.heard.errors], [1, []]);
  const usage = await eventually('both on record', SETTLED_MS, async () => {
    const total = await usageOf(gateway, id);
    return total?.requests === 2 ? total : undefined;
  });
  const [counted] = closed.heard.usages;
  assert.deepEqual([usage.completion_tokens, usage.estimated], [2 * Number(counted?.completion_tokens), 0]);
  return `${closed.how}, the same text; twice ${counted?.prompt_tokens} + ${counted?.completion_tokens} tokens on record`;
}

/** Each line once, with the engine's response. */
export async function batch({ gateway, model }: Place): Promise<string> {
  const { key } = await newKey(gateway);
  const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: key, maxRetries: 0 });
  const line = (n: number) => ({ custom_id: `${n}`, method: 'POST', url: '/v1/chat/completions', body: chat(model) });
  const lines = Array.from({ length: LINES }, (_, n) => JSON.stringify(line(n))).join('\n');
  const file = await client.files.create({ file: await toFile(Buffer.from(lines), 'in.jsonl'), purpose: 'batch' });
  const { id } = await client.batches.create({
    input_file_id: file.id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  });
  const ended = await eventually('its end', BATCH_MS, async () => {
    const now = await client.batches.retrieve(id);
    return ['completed', 'failed'].includes(now.status) ? now : undefined;
  });
  assert.deepEqual([ended.status, ended.request_counts?.completed], ['completed', LINES], JSON.stringify(ended));
  const output = await (await client.files.content(ended.output_file_id ?? '')).text();
  const texts = output
    .trim()
    .split('\n')
    .map((one) => JSON.parse(one).response.body.choices[0].message.content);
  assert.deepEqual([texts.length, new Set(texts).size], [LINES, 1]);
  return `${LINES} lines, ${ended.usage?.output_tokens} tokens, the same text in each`;
}
