/** Requests that find no free node: which ones wait, in which order they are sent, and how they end. */
import { request as httpRequest } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { neverRejects } from '../../shared/timing/in-background.ts';
import { startAgent } from '../support/agent.ts';
import { type Engine, startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { promise } from '../support/patience.ts';
import { atEnd, endAll, eventually, type Managed } from '../support/processes.ts';
import { chatBody, envelopeOf } from '../support/test-cluster.ts';

let gateway: Gateway;
let key: string;
let token: string;

/** Longer than the time after which a waiting stream is opened with comments. No node ever serves the model. */
const LATE_MS = 30_000;
let late: { stream: Promise<string>; unary: Promise<Response> };

beforeAll(async () => {
  gateway = await Gateway.start({ queue: { unary_ms: LATE_MS, stream_ms: LATE_MS } });
  [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  await expected('never/there');
  late = {
    stream: ask('never/there', {}, { body: streamBody('never/there') }).then((response) => response.text()),
    unary: ask('never/there'),
  };
  for (const one of Object.values(late)) one.catch(() => undefined); // awaited in the last test
});
afterAll(endAll);

interface Node {
  engine: Engine;
  agent: Managed;
}

async function addNode(model: string, options: { slots?: number; args?: string[] } = {}): Promise<Node> {
  const { slots, args = [] } = options;
  const engine = await startEngine({ models: [model], ...(slots === undefined ? {} : { slots }) });
  atEnd(() => engine.close());
  const agent = await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, args });
  return { engine, agent };
}

function ask(model: string, standIn: object = {}, init: RequestInit & { as?: string } = {}): Promise<Response> {
  const { as = key, ...more } = init;
  return fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    body: JSON.stringify(chatBody(standIn, { model })),
    ...more,
    headers: { authorization: `Bearer ${as}`, 'content-type': 'application/json', ...Object(init.headers) },
  });
}

/** A stream that continues until its client disconnects. */
function streamBody(model: string): string {
  return JSON.stringify(chatBody({ tokens: 100_000, tokensPerSecond: 5 }, { model, stream: true }));
}

/** The operator set something for the model, so a node may appear. */
async function expected(model: string): Promise<void> {
  await gateway.admin('PUT', `models/${model}`, {});
}

/** The model's node was there and has left. */
async function gone(model: string): Promise<void> {
  const { agent } = await addNode(model);
  await gateway.serving(1, 15_000, model);
  await agent.stop();
  await gateway.serving(0, 15_000, model);
}

it('a request for a model whose nodes are gone is answered by the next one that comes', async () => {
  await gone('back/soon');
  const asked = [ask('back/soon'), ask('back/soon'), ask('back/soon')];
  await gateway.queued(3, 'back/soon');
  const { engine } = await addNode('back/soon');
  for (const response of await Promise.all(asked)) {
    expect(response.status, await response.text()).toBe(200);
    // The wait is the queue's and not the return path's.
    const timing = response.headers.get('server-timing') ?? '';
    const stage = (name: string) => Number(new RegExp(`\\b${name};dur=([0-9.]+)`).exec(timing)?.[1]);
    expect(stage('queue'), timing).toBeGreaterThan(10 * stage('return'));
  }
  expect(engine.requests).toHaveLength(3);
});

it('a request whose only node dies in its hands, before a word of the answer, is answered by the next one', async () => {
  const first = await addNode('dies/once');
  await gateway.serving(1, 15_000, 'dies/once');
  first.engine.control({ delayMs: 60_000 });
  const asked = ask('dies/once');
  await first.engine.when(({ bodyBytes }) => bodyBytes > 0, 10_000);
  process.kill(first.agent.pid, 'SIGKILL');
  const { engine } = await addNode('dies/once');
  const response = await asked;
  expect(response.status, await response.text()).toBe(200);
  expect(response.headers.get('x-otela-attempts')).toBe('2');
  expect(engine.requests).toHaveLength(1);
});

it('a node that has enough to do says so before it takes a body, and the others are asked', async () => {
  const busy = await addNode('shifts', { args: ['--max-running', '1'] });
  await gateway.serving(1, 15_000, 'shifts');
  const long = ask('shifts', { delayMs: 60_000 }, { signal: AbortSignal.timeout(50_000) }).catch(() => 'over');
  await busy.engine.when(({ bodyBytes }) => bodyBytes > 0, 10_000);
  const free = await addNode('shifts');
  await gateway.serving(2, 15_000, 'shifts');
  for (let n = 0; n < 12; n++) expect((await ask('shifts')).status).toBe(200);
  expect(busy.engine.requests).toHaveLength(1);
  expect(free.engine.requests).toHaveLength(12);
  const serving = (await gateway.nodes()).filter(({ models }) => models.some(({ id }) => id === 'shifts'));
  expect(serving.map(({ suspected }) => suspected)).toEqual([false, false]);
  neverRejects(long);
});

it('where all nodes are busy the places that become free go to projects by weight, and interactive goes first', async () => {
  const model = 'fair/one';
  const [one, two] = await Promise.all(['one', 'two'].map((name) => gateway.createProject(name)));
  await gateway.admin('PATCH', 'settings', { queue: { weights: { [two ?? '']: 3 } } });
  const { engine } = await addNode(model, { args: ['--max-running', '1'] });
  await gateway.serving(1, 15_000, model);
  const [small, large] = await Promise.all([
    gateway.createKey('small', { project_id: one }),
    gateway.createKey('large', { project_id: two }),
  ]);
  const hold = await ask(model, {}, { body: streamBody(model) });
  const send = (as: string, marker: string, headers: Record<string, string> = {}) =>
    ask(model, {}, { as, headers: { ...headers, 'x-request-id': marker } }).then(async (response) => {
      expect(response.status, await response.text()).toBe(200);
    });
  const waiting = [
    ...Array.from({ length: 4 }, (_, n) => send(small, `batch-${n}`, { 'x-otela-priority': 'batch' })),
    ...Array.from({ length: 8 }, (_, n) => send(small, `small-${n}`)),
    ...Array.from({ length: 8 }, (_, n) => send(large, `large-${n}`)),
  ];
  await gateway.queued(waiting.length, model);
  await hold.body?.cancel();
  await Promise.all(waiting);
  const order = engine.requests.slice(1).map(({ headers }) => String(headers['x-request-id']).split('-')[0]);
  expect(order).toHaveLength(20);
  const first = order.slice(0, 8);
  expect(first.filter((who) => who === 'large').length).toBeGreaterThanOrEqual(5);
  expect(first.filter((who) => who === 'batch').length).toBeLessThanOrEqual(1);
  // Requests that get their turns close together may reach the engine in another order.
  expect(order.slice(-5).filter((who) => who === 'batch').length).toBeGreaterThanOrEqual(3);
});

it('a body that is not looked into is not read before a node is there', async () => {
  const model = 'unread/one';
  const bytes = 48 * 1024 * 1024;
  await expected(model);
  const headers = {
    authorization: `Bearer ${key}`,
    'content-type': 'application/octet-stream',
    'content-length': bytes,
    'x-otela-model': model,
  };
  const upload = httpRequest(`${gateway.url}/v1/audio/transcriptions`, { method: 'POST', headers, agent: false });
  const status = new Promise<number | undefined>((resolve, reject) => {
    upload.once('response', (response) => resolve(response.resume().statusCode));
    upload.once('error', reject);
  });
  let written = 0;
  let drained = true;
  const block = Buffer.alloc(256 * 1024, 'x');
  const drain = () => new Promise<true>((resolve) => upload.once('drain', () => resolve(true)));
  const silence = () => new Promise<false>((resolve) => setTimeout(resolve, promise(700), false));
  while (drained && written < bytes) {
    written += block.length;
    if (!upload.write(block)) drained = await Promise.race([drain(), silence()]);
  }
  expect(written).toBeLessThan(bytes / 2);
  const { engine } = await addNode(model);
  for (await drain(); written < bytes; written += block.length) if (!upload.write(block)) await drain();
  upload.end();
  expect(await status).toBe(200);
  expect(engine.requests.map(({ bodyBytes }) => bodyBytes)).toEqual([bytes]);
});

it('a queue that is full says so at once, and when to come again', async () => {
  await expected('full/one');
  await gateway.admin('PATCH', 'settings', { queue: { places: 1 } });
  const client = new AbortController();
  const asked = [1, 2].map(() => ask('full/one', {}, { signal: client.signal }));
  const refused = await Promise.race(asked);
  expect(refused.status).toBe(429);
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  expect((await envelopeOf(refused)).code).toBe('queue_full');
  client.abort();
  await Promise.allSettled(asked);
});

it('a priority that is none is 400', async () => {
  const response = await ask('full/one', {}, { headers: { 'x-otela-priority': 'urgent' } });
  expect(response.status).toBe(400);
});

it('a model whose last node left longer ago than requests wait is told so at once, unless the operator expects it', async () => {
  const model = 'gone/long';
  await gone(model);
  await gateway.admin('PATCH', 'settings', { queue: { unary_ms: 2_000, stream_ms: 2_000 } });
  // It waits if the settings have not arrived yet, or if the node left a moment ago.
  const told = (words: RegExp) =>
    eventually(String(words), 30_000, async () => {
      const answer = await ask(model, {}, { signal: AbortSignal.timeout(10_000) }).catch(() => undefined);
      if (answer === undefined) return undefined;
      const { code, message } = await envelopeOf(answer);
      expect([answer.status, code, answer.headers.get('x-should-retry')]).toEqual([503, 'no_capacity', 'false']);
      return words.test(message) ? message : undefined;
    });
  await told(/'gone\/long' left \d+ (s|min) ago/);
  await expected(model);
  await told(/\b2 s\b/);
});

it('who waits too long is told so: 503, and in a stream that was opened in-band, without an end', async () => {
  const unary = await late.unary;
  expect(unary.status).toBe(503);
  expect(await envelopeOf(unary)).toMatchObject({
    code: 'no_capacity',
    message: expect.stringContaining('30 s'),
  });
  const text = await late.stream;
  expect(text).toMatch(/^: otela queued (\d+(st|nd|rd|th))\n\n/);
  expect(text).toMatch(/data: \{"error":.*"no_capacity"/);
  expect(text).not.toContain('[DONE]');
});
