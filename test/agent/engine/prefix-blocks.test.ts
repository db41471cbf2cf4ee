import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { afterEach, expect, it } from 'vitest';
import { PrefixBlocks } from '../../../agent/engine/prefix-blocks.ts';

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

/** An engine that answers `/tokenize` with `answer`. */
async function engine(answer: (body: string, response: ServerResponse, request: IncomingMessage) => void) {
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    answer(body, response, request);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  closing.push(() => server.close());
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return { origin: `http://127.0.0.1:${address.port}`, pathPrefix: '/llm', key: 'engine-key' };
}

const utf8 = (value: unknown) => new TextEncoder().encode(typeof value === 'string' ? value : JSON.stringify(value));

function blocksOf(body: unknown, target: { origin: string; pathPrefix: string }): Promise<Uint8Array> {
  return new Promise((resolve) => new PrefixBlocks().ask(utf8(body), target, resolve));
}

it('asks the engine as it was asked itself, and digests full blocks of sixteen ids', async () => {
  const asked: unknown[] = [];
  const target = await engine((body, response, { url, headers }) => {
    asked.push([url, headers.authorization, JSON.parse(body)]);
    response.end(JSON.stringify({ tokens: Array.from({ length: 40 }, (_, n) => n * 1_000) }));
  });
  const messages = [{ role: 'user', content: 'hello' }];
  const blocks = await blocksOf({ model: 'm', messages, tools: [], temperature: 1 }, target);
  const question = { model: 'm', messages, add_generation_prompt: true, tools: [] };
  expect(asked).toEqual([['/llm/tokenize', 'Bearer engine-key', question]]);
  const first = Uint32Array.from({ length: 16 }, (_, n) => n * 1_000);
  expect(blocks).toHaveLength(64);
  expect(Buffer.from(blocks.subarray(0, 32))).toEqual(
    createHash('sha256').update(new Uint8Array(first.buffer)).digest(),
  );
});

it.each([
  ['has none', (response: ServerResponse) => void response.writeHead(404).end('{}')],
  ['answers with something else', (response: ServerResponse) => void response.end('{"count":3}')],
  ['answers with no numbers', (response: ServerResponse) => void response.end('{"tokens":["a"]}')],
])('an engine whose tokenizer %s gives no blocks, and says so', async (_, answer) => {
  const target = await engine((_body, response) => answer(response));
  expect(await blocksOf({ model: 'm', prompt: 'a' }, target)).toHaveLength(0);
});

it('a long prompt is told up to its first 1,024 blocks', async () => {
  const target = await engine(
    (_, response) => void response.end(JSON.stringify({ tokens: new Array(20_000).fill(7) })),
  );
  expect(await blocksOf({ model: 'm', prompt: 'a' }, target)).toHaveLength(1_024 * 32);
});

it('what has no prompt of text, an engine that breaks off and a flood cost nothing but their own blocks', async () => {
  let asked = 0;
  const target = await engine((_, response) => {
    asked++;
    response.end(JSON.stringify({ tokens: [1] }));
  });
  const blocks = new PrefixBlocks();
  const told: Uint8Array[] = [];
  for (const body of ['no json', '7', 'null', { model: 'm', prompt: [1, 2] }, { model: 'm' }]) {
    blocks.ask(utf8(body), target, (some) => told.push(some));
  }
  const broken = await engine((_, response) => void response.destroy());
  blocks.ask(utf8({ prompt: 'a' }), broken, (some) => told.push(some));
  await new Promise<void>((resolve) => blocks.ask(utf8({ prompt: 'a' }), target, () => resolve()));
  expect([told.length, asked]).toEqual([0, 1]);
  let answered = 0;
  const all = Array.from(
    { length: 500 },
    () =>
      new Promise<void>((resolve) => {
        blocks.ask(utf8({ prompt: 'a' }), target, () => {
          answered++;
          resolve();
        });
      }),
  );
  await Promise.race(all);
  await Promise.all(all.slice(0, 60));
  expect(answered).toBeLessThan(80);
});
