import { afterEach, expect, it } from 'vitest';
import { text as wordsOf } from '../../support/engine/words.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { hear } from '../../support/streams.ts';
import { MODEL } from '../../support/test-cluster.ts';
import { Village, type Villager } from './village.ts';

afterEach(endAll);

const TOKENS = 40;
const CHAT = { model: MODEL, stream: true, messages: [{ role: 'user', content: 'Say something.' }] };
const COMPLETION = { model: MODEL, stream: true, prompt: 'Say something: ', max_tokens: TOKENS };

async function village(nodes: number): Promise<{ here: Villager; nodes: Villager[]; all: Village }> {
  const all = new Village();
  const here = await all.add({ engine: false });
  const others: Villager[] = [];
  for (let n = 0; n < nodes; n++) {
    const villager = await all.add({ engine: { behaviour: { tokens: TOKENS, id: `engine-${n}` } } });
    others.push(villager);
  }
  return { here, nodes: others, all };
}

const carrier = (nodes: Villager[]) => nodes.find(({ engine }) => (engine?.running() ?? 0) > 0);

/** Asks for a stream and breaks its carrier with each of `breaks`, five tokens apart. */
async function told(
  { here, nodes }: { here: Villager; nodes: Villager[] },
  [path, body]: [string, object],
  breaks: ((node: Villager | undefined) => unknown)[],
  headers: Record<string, string> = { 'x-otela-resume': '1' },
): Promise<string> {
  for (const { engine } of nodes) engine?.control({ pauseAfter: 8 });
  const response = await here.ask(path, body, { headers });
  expect(response.status).toBe(200);
  let all = '';
  let next = 5;
  const decoder = new TextDecoder();
  for await (const piece of response.body ?? []) {
    all += decoder.decode(piece, { stream: true });
    if (breaks.length === 0 || hear(all).textChunks < next) continue;
    const node = carrier(nodes);
    if (breaks.length === 1) for (const one of nodes) if (one !== node) one.engine?.control({});
    await breaks.shift()?.(node);
    next = hear(all).textChunks + 5;
  }
  expect(breaks).toEqual([]);
  return all;
}

const hangUp = (node: Villager | undefined) => node?.engine?.hangUp();
const kill = (node: Villager | undefined) => node?.kill();

it.each<[string, object]>([
  ['/chat/completions', CHAT],
  ['/completions', COMPLETION],
])('%s: when engine or node die in mid-stream, others go on', async (path, body) => {
  const place = await village(3);
  const options = { stream_options: { include_usage: true } };
  const heard = hear(await told(place, [path, { ...body, ...options }], [hangUp, kill]));
  expect(heard).toMatchObject({ text: wordsOf(TOKENS), dones: 1, errors: [], cut: false });
  expect(heard.ids.size).toBe(1);
  expect(heard.usages).toEqual([expect.objectContaining({ completion_tokens: TOKENS, otela_estimated: true })]);
  const ours = heard.comments.filter((comment) => comment.startsWith('otela continued'));
  expect(ours).toHaveLength(2);
  // Requests to tokenizers are not charged to any client.
  const charged = () => place.here.usage.filter(({ receipt }) => receipt !== '');
  await eventually('records', 15_000, () => (charged().length >= 2 ? true : undefined));
  // For the killed node an estimate follows when no report can arrive any more.
  expect(charged().map(({ attempt }) => attempt)).toEqual([1, 3]);
});

it('no node continues if the request did not ask for it, or does not allow it', async () => {
  const place = await village(2);
  const unasked = hear(await told(place, ['/completions', COMPLETION], [hangUp], {}));
  expect(unasked).toMatchObject({ dones: 0, errors: [{ code: 'upstream_error' }] });
  const seeded = hear(await told(place, ['/completions', { ...COMPLETION, seed: 1 }], [hangUp]));
  expect(seeded).toMatchObject({ dones: 0, errors: [{ code: 'upstream_error' }] });
  expect(JSON.stringify(seeded.errors)).toContain("'seed'");
});

it('a client that disconnects during the search for a node leaves no engine at work', async () => {
  const place = await village(3);
  for (const { engine } of place.nodes) engine?.control({ pauseAfter: 8 });
  const left = new AbortController();
  const headers = { 'x-otela-resume': '1' };
  const response = await place.here.ask('/completions', COMPLETION, { headers, signal: left.signal });
  await response.body?.getReader().read();
  const first = carrier(place.nodes);
  const others = place.nodes.filter((one) => one !== first);
  for (const { engine } of others) engine?.control({ delayMs: 20_000 });
  hangUp(first);
  await eventually('somebody is asked', 5_000, () => carrier(others));
  left.abort();
  await eventually('nobody works', 5_000, () => (carrier(place.nodes) === undefined ? true : undefined));
});
