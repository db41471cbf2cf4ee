/**
 * Requests to an ingress that find no free node: they wait in a bounded and fair queue; and how the ingress chooses
 * among several nodes.
 */
import { afterEach, expect, it } from 'vitest';
import { text as wordsOf } from '../../support/engine/words.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { hear } from '../../support/streams.ts';
import { chatBody, envelopeOf, MODEL } from '../../support/test-cluster.ts';
import { entryOf, Village, type Villager } from './village.ts';

afterEach(endAll);

const CHAT = '/chat/completions';
const PATIENT = { unaryMs: 20_000, streamMs: 20_000 };

/** An ingress that waits, and a node that has left. */
async function waitingPlace(queue: object = PATIENT, more: object = {}) {
  const all = new Village();
  const here = await all.add({ engine: false, queue, ...more });
  const node = await all.add();
  all.publish({ ...node.entry, state: 'DOWN' });
  return { all, here, node, back: () => all.publish(node.entry) };
}

const waiting = ({ ingress }: Villager, count: number) =>
  eventually(`${count} in the queue`, 5_000, () => (ingress.waiting === count ? true : undefined));

/** A stream that began before it waits gets pings; a stream that did not gets its place in the queue. */
const waits = (said: string) =>
  hear(said).comments.filter((comment) => /^otela queued( \d+(st|nd|rd|th))?$/.test(comment) || comment === 'ping')
    .length;

/** The text of a stream until now, and its end. */
function reading(response: Response): { said(): string; over: Promise<void> } {
  let said = '';
  const decoder = new TextDecoder();
  const read = async () => {
    for await (const piece of response.body ?? []) said += decoder.decode(piece, { stream: true });
  };
  return { said: () => said, over: read() };
}

it('a request that finds no node waits for one, non-streaming and as a stream with comments', async () => {
  const { here, back } = await waitingPlace(PATIENT, { pingMs: 100 });
  const unary = here.ask(CHAT, chatBody());
  const stream = await here.ask(CHAT, chatBody({ tokens: 5 }, { stream: true }));
  expect(stream.status).toBe(200);
  const { said, over } = reading(stream);
  await waiting(here, 2);
  await eventually('three comments', 5_000, () => (waits(said()) >= 3 ? true : undefined));
  back();
  expect((await unary).status).toBe(200);
  await over;
  expect(hear(said())).toMatchObject({ text: wordsOf(5), dones: 1, errors: [] });
});

it('a request that waits too long gets 503, and an open stream gets it in-band', async () => {
  const { here } = await waitingPlace({ unaryMs: 200, streamMs: 400 }, { pingMs: 100 });
  const unary = await here.ask(CHAT, chatBody());
  expect(unary.status).toBe(503);
  expect((await envelopeOf(unary)).code).toBe('no_capacity');
  const stream = await (await here.ask(CHAT, chatBody({}, { stream: true }))).text();
  expect(stream).toMatch(/^: otela queued 1st\n\n/);
  expect(hear(stream)).toMatchObject({ dones: 0, errors: [{ code: 'no_capacity' }] });
});

it('a full queue is 429 and says when to come again; batch makes room for interactive', async () => {
  const { here, back } = await waitingPlace({ ...PATIENT, places: 2 });
  const batch = { headers: { 'x-otela-priority': 'batch' } };
  const asked = [here.ask(CHAT, chatBody()), here.ask(CHAT, chatBody(), batch)];
  await waiting(here, 2);
  const refused = await here.ask(CHAT, chatBody(), batch);
  expect(refused.status).toBe(429);
  expect((await envelopeOf(refused)).code).toBe('queue_full');
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  asked.push(here.ask(CHAT, chatBody()));
  expect((await Promise.race(asked)).status).toBe(429);
  back();
  expect((await Promise.all(asked)).map(({ status }) => status)).toEqual([200, 429, 200]);
  expect((await here.ask(CHAT, chatBody(), { headers: { 'x-otela-priority': 'soon' } })).status).toBe(400);
});

it('a client that disconnects while it waits causes no attempt', async () => {
  const { here, node, back } = await waitingPlace();
  const client = new AbortController();
  const left = here.ask(CHAT, chatBody(), { signal: client.signal }).catch(() => 'left');
  await waiting(here, 1);
  client.abort();
  expect(await left).toBe('left');
  await waiting(here, 0);
  back();
  expect((await here.ask(CHAT, chatBody())).status).toBe(200);
  expect(node.engine?.requests).toHaveLength(1);
});

it('a request does not wait if no node ever served its model, or none meets its requirement', async () => {
  const { here, back } = await waitingPlace();
  expect((await here.ask(CHAT, chatBody({}, { model: 'never/there' }))).status).toBe(404);
  back();
  const headers = { 'x-otela-require': 'gpu=H100' };
  const unmet = await here.ask(CHAT, chatBody(), { headers });
  expect(unmet.status).toBe(412);
  const alien = await here.ask(CHAT, chatBody(), { headers: { 'x-otela-trusted-providers': 'somebody' } });
  expect(alien.status).toBe(403);
});

it('an agent that leaves lets those go that wait', async () => {
  const { here } = await waitingPlace();
  const asked = here.ask(CHAT, chatBody());
  await waiting(here, 1);
  const drained = here.ingress.drain();
  const response = await asked;
  expect(response.status).toBe(503);
  expect((await envelopeOf(response)).code).toBe('no_capacity');
  await drained;
});

/** A stream of 40 words that `here` requested; its `node` disappears after 8 of them. */
async function brokenStream(all: Village, here: Villager, node: Villager) {
  node.engine?.control({ tokens: 40, pauseAfter: 8 });
  const body = { model: MODEL, stream: true, prompt: 'Say something: ', max_tokens: 40 };
  const response = await here.ask('/completions', body, { headers: { 'x-otela-resume': '1' } });
  const { said, over } = reading(response);
  await eventually('it has begun', 5_000, () => (hear(said()).textChunks >= 8 ? true : undefined));
  all.publish({ ...node.entry, state: 'DOWN' });
  node.engine?.hangUp();
  return { said, over };
}

it('a broken stream waits for a node, with comments, and goes on', async () => {
  const all = new Village();
  const here = await all.add({ engine: false, queue: PATIENT, pingMs: 100 });
  const node = await all.add();
  const { said, over } = await brokenStream(all, here, node);
  await eventually('it waits', 5_000, () => (waits(said()) >= 2 ? true : undefined));
  const next = await all.add();
  next.engine?.control({ tokens: 40 });
  await over;
  expect(hear(said())).toMatchObject({ text: wordsOf(40), dones: 1, errors: [], finishes: [expect.anything()] });
  expect(hear(said()).ids.size).toBe(1);
});

it('a broken stream does not wait for a node that is no longer known', async () => {
  const all = new Village();
  const here = await all.add({ engine: false, queue: PATIENT });
  const node = await all.add();
  const alike = await all.add({ engine: false, models: [MODEL] });
  all.publish({ ...alike.entry, models: [{ id: MODEL, state: 'ready', revision: 'another' }] });
  const { said, over } = await brokenStream(all, here, node);
  const startedAt = Date.now();
  all.registry.index.delete(node.session);
  await over;
  expect(hear(said())).toMatchObject({ dones: 0, errors: [{ code: 'upstream_error' }] });
  expect(Date.now() - startedAt).toBeLessThan(PATIENT.streamMs / 2);
});

const counts = (nodes: readonly Villager[]) => nodes.map(({ engine }) => engine?.requests.length ?? 0);

it('--policy round-robin: each node in its turn', async () => {
  const all = new Village();
  const here = await all.add({ engine: false, policy: 'round-robin' });
  const nodes = [await all.add(), await all.add(), await all.add()];
  for (let n = 0; n < 12; n++) expect((await here.ask(CHAT, chatBody())).status).toBe(200);
  expect(counts(nodes)).toEqual([4, 4, 4]);
});

it('--policy weighted: by the GPUs that nodes publish', async () => {
  const all = new Village();
  const here = await all.add({ engine: false, policy: 'weighted' });
  const nodes = [await all.add(), await all.add()];
  const gpus = (count: number) =>
    Array.from({ length: count }, () => ({ class: 'H100', name: 'H100', vram_mib: 81_559 }));
  for (const [n, { session }] of nodes.entries()) {
    const entry = entryOf(session, 'lab', 'local', [MODEL]);
    all.publish({ ...entry, hardware: { ...entry.hardware, gpus: gpus(n === 0 ? 3 : 1) } });
  }
  for (let n = 0; n < 20; n++) expect((await here.ask(CHAT, chatBody())).status).toBe(200);
  const [large = 0, small = 0] = counts(nodes);
  expect(large).toBeGreaterThanOrEqual(14);
  expect(small).toBeGreaterThanOrEqual(4);
});

it('--policy prefix-affinity, and by default: a conversation stays at its node', async () => {
  for (const policy of ['prefix-affinity', undefined] as const) {
    const all = new Village();
    const here = await all.add({ engine: false, ...(policy && { policy }) });
    const nodes = [await all.add(), await all.add(), await all.add()];
    const headers = { 'x-otela-session': 'one' };
    for (let n = 0; n < 4; n++) expect((await here.ask(CHAT, chatBody(), { headers })).status).toBe(200);
    expect(counts(nodes).sort()).toEqual([0, 0, 4]);
  }
});
