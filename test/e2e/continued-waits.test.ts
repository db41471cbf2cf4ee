/** Broken streams for which there is no node at that moment: they wait for one, as any request does. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { text as wordsOf } from '../support/engine/words.ts';
import type { Behaviour } from '../support/engine.ts';
import { endAll, eventually } from '../support/processes.ts';
import { hear } from '../support/streams.ts';
import { type Bench, openTunnelBench, type TunnelBench } from '../support/tunnel/tunnel-bench.ts';

const TOKENS = 40;
const PAUSED: Behaviour = { tokens: TOKENS, pauseAfter: 8 };
const RESUME = { 'x-otela-resume': '1' };

let shop: TunnelBench;
beforeAll(async () => {
  shop = await openTunnelBench();
  await shop.admin('PATCH', 'settings', { queue: { stream_ms: 60_000 } });
});
afterAll(endAll);

const PATHS = {
  '/v1/chat/completions': { messages: [{ role: 'user', content: 'Say something.' }] },
  '/v1/completions': { prompt: 'Say something: ', max_tokens: 1000 },
} as const;

async function node(model: string, behaviour: Behaviour = PAUSED, facts = {}): Promise<Bench> {
  const bench = await shop.addNode({ models: [model] }, {}, facts);
  bench.engine.control(behaviour);
  return bench;
}

interface Stream {
  said(): string;
  over: Promise<void>;
}

/** Opens a stream that begins and then stalls. */
async function begun(path: keyof typeof PATHS, model: string, signal?: AbortSignal): Promise<Stream> {
  const body = { model, stream: true, ...PATHS[path] };
  const response = await shop.ask(path, body, { headers: RESUME, ...(signal && { signal }) });
  expect(response.status).toBe(200);
  let all = '';
  const decoder = new TextDecoder();
  const read = async () => {
    for await (const piece of response.body ?? []) all += decoder.decode(piece, { stream: true });
  };
  const over = read().catch((error: unknown) => {
    if (!signal?.aborted) throw error;
  });
  await eventually('it stands still', 5_000, () => (hear(all).textChunks >= 8 ? true : undefined));
  return { said: () => all, over };
}

/** Ends nodes with their engines, and waits until the registry knows it. */
async function gone(...benches: Bench[]): Promise<void> {
  await Promise.all(benches.map((bench) => bench.close()));
}

const generated = (bench: Bench) => bench.engine.requests.filter(({ url }) => url.endsWith('/completions')).length;

/** Asserts that the stream got no error, because it waits. */
async function waiting(stream: Stream): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  expect(hear(stream.said()).errors).toEqual([]);
}

it.each(['/v1/chat/completions', '/v1/completions'] as const)(
  '%s: all replicas die in mid-stream and one comes back: the client gets the whole text, one id, one [DONE]',
  async (path) => {
    const model = `waits${path}`;
    const both = await Promise.all([node(model), node(model)]);
    await shop.refreshed();
    const streams = await Promise.all([begun(path, model), begun(path, model)]);
    await gone(...both);
    for (const stream of streams) await waiting(stream);
    await node(model, { tokens: TOKENS });
    for (const { over, said } of streams) {
      await over;
      const heard = hear(said());
      expect(heard).toMatchObject({ text: wordsOf(TOKENS), dones: 1, finishes: ['stop'], errors: [], cut: false });
      expect(heard.ids.size).toBe(1);
      expect(heard.comments.filter((comment) => comment.startsWith('otela continued'))).toHaveLength(1);
    }
  },
);

it('the only node breaks the stream off and is well again: it goes on there', async () => {
  const only = await node('only/one');
  await shop.refreshed();
  const { over, said } = await begun('/v1/completions', 'only/one');
  only.engine.control({ tokens: TOKENS });
  only.engine.hangUp();
  await over;
  expect(hear(said())).toMatchObject({ text: wordsOf(TOKENS), dones: 1, errors: [] });
  expect(generated(only)).toBe(2);
});

it('a node of another revision is no help: the stream waits for one of its own', async () => {
  const model = 'two/revisions';
  const first = await node(model, PAUSED, { revision: 'a' });
  await shop.refreshed();
  const stream = await begun('/v1/completions', model);
  const other = await node(model, { tokens: TOKENS }, { revision: 'b' });
  await gone(first);
  await waiting(stream);
  // The waiting stream does not block requests that can use the other node.
  expect((await shop.ask('/v1/completions', { model, prompt: 'Anything.' })).status).toBe(200);
  await node(model, { tokens: TOKENS }, { revision: 'a' });
  await stream.over;
  expect(hear(stream.said())).toMatchObject({ text: wordsOf(TOKENS), dones: 1, errors: [] });
  expect(generated(other)).toBe(1);
});

it('a client that leaves while its stream waits leaves the queue: no engine hears of it', async () => {
  const model = 'left/waiting';
  const first = await node(model);
  await shop.refreshed();
  const client = new AbortController();
  const stream = await begun('/v1/completions', model, client.signal);
  await gone(first);
  await waiting(stream);
  client.abort();
  await stream.over;
  const next = await node(model, { tokens: 5 });
  await shop.refreshed();
  expect((await shop.ask('/v1/completions', { model, prompt: 'Anything.' })).status).toBe(200);
  expect(generated(next)).toBe(1);
});

it('a queue that is full, and a wait that is over, are told in-band', async () => {
  const model = 'full/one';
  const only = await node(model);
  await shop.admin('PATCH', 'settings', { queue: { stream_ms: 3_000, places: 1 } });
  await shop.refreshed();
  const streams = await Promise.all([begun('/v1/completions', model), begun('/v1/completions', model)]);
  await gone(only);
  const whys: string[] = [];
  for (const { over, said } of streams) {
    await over;
    const heard = hear(said());
    expect(heard).toMatchObject({ dones: 0, finishes: [], errors: [{ code: 'upstream_error' }] });
    whys.push(
      /too many requests already wait|no node that could continue it/.exec(JSON.stringify(heard.errors))?.[0] ?? '',
    );
  }
  expect(whys.sort()).toEqual(['no node that could continue it', 'too many requests already wait']);
});

it('none of it was an error inside the gateway', () => {
  expect(shop.logs()).toEqual([]);
});
