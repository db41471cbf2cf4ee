/** The registry's views through the gateway's API. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { endAll, eventually } from '../support/processes.ts';
import { envelopeOf, MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster({
    nodes: 2,
    agentArgs: ['--fact', 'context=32768', '--fact', 'quantization=fp8', '--region', 'eu-central'],
  });
});
afterAll(endAll);

const listSchema = z.object({ object: z.literal('list'), data: z.array(z.object({ session: z.string().optional() })) });

async function count(query: string): Promise<number> {
  const response = await cluster.ask(`/v1/registry/nodes?${query}`);
  expect(response.status, query).toBe(200);
  return listSchema.parse(await response.json()).data.length;
}

/** Events of a stream as they arrive. */
async function watch(path: string) {
  const ending = new AbortController();
  const response = await cluster.ask(path, undefined, { signal: ending.signal });
  expect(response.headers.get('content-type')).toBe('text/event-stream');
  const events: { event: string; data: string }[] = [];
  let text = '';
  const reading = (async () => {
    for await (const chunk of response.body ?? []) {
      text += Buffer.from(chunk).toString();
      for (let at = text.indexOf('\n\n'); at >= 0; at = text.indexOf('\n\n')) {
        const lines = text.slice(0, at).split('\n');
        text = text.slice(at + 2);
        const field = (name: string) =>
          lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? '';
        if (!lines[0]?.startsWith(':')) events.push({ event: field('event'), data: field('data') });
      }
    }
  })().catch(() => undefined);
  const close = () => {
    ending.abort();
    return reading;
  };
  return { events, close };
}

test('filters of a query leave the nodes that pass', async () => {
  expect(await count('')).toBe(2);
  expect(await count('context>=32768&quantization>=8&region=eu-central&provider=lab&state=SERVING')).toBe(2);
  expect(await count('context>=32769')).toBe(0);
  expect(await count(`model=${encodeURIComponent(MODEL)}`)).toBe(2);
  expect(await count('provider=nobody')).toBe(0);
});

test('a filter that means nothing is 400 and says which there are', async () => {
  const response = await cluster.ask('/v1/registry/nodes?colour=red');
  expect(response.status).toBe(400);
  expect(await envelopeOf(response)).toMatchObject({
    code: 'invalid_requirement',
    message: expect.stringMatching(/colour.*vram/),
  });
});

test('a client with the newest answer is told so; HEAD has the head alone; nothing can be written', async () => {
  const first = await cluster.ask('/v1/registry/nodes');
  const etag = first.headers.get('etag') ?? '';
  expect(etag).toMatch(/^W\/".+"$/);
  const again = await cluster.ask('/v1/registry/nodes', undefined, { headers: { 'if-none-match': etag } });
  expect([again.status, await again.text()]).toEqual([304, '']);
  const head = await cluster.ask('/v1/registry/nodes', undefined, { method: 'HEAD' });
  expect([head.status, head.headers.get('etag'), await head.text()]).toEqual([200, etag, '']);
  const put = await cluster.ask('/v1/registry/nodes', undefined, { method: 'PUT' });
  expect([put.status, put.headers.get('allow')]).toEqual([405, 'GET, HEAD']);
  expect((await cluster.ask('/v1/registry/nodes?time_left>=1h')).headers.get('etag')).toBeNull();
  await eventually('another query', 1_000, async () => ((await count('provider=lab')) === 2 ? true : undefined));
});

test('both agents are delegates of their cluster, and the gateway says whose keys it signs with', async () => {
  const stateSchema = z.object({
    issuer: z.object({ keys: z.literal('environment'), id: z.string(), certificate_ends_at: z.iso.datetime() }),
    registry: z.object({
      sessions: z.number(),
      delegates: z.literal(2),
      frozen_clusters: z.array(z.string()).length(0),
    }),
  });
  await eventually('two delegates', 15_000, async () => {
    const response = await fetch(`${cluster.gateway.url}/readyz`);
    return stateSchema.safeParse(await response.json()).success ? true : undefined;
  });
});

test('without a key there is no view and no stream', async () => {
  for (const path of ['nodes', 'models', 'providers', 'nodes/stream'])
    expect((await fetch(`${cluster.base}/registry/${path}`)).status, path).toBe(401);
});

test('a stream tells of each change within seconds while nobody else asks anything', async () => {
  const nodes = await watch('/v1/registry/nodes/stream?state=SERVING');
  const models = await watch('/v1/registry/models/stream');
  const whole = await eventually('the first snapshot', 5_000, () => nodes.events[0]);
  expect(whole.event).toBe('snapshot');
  expect(listSchema.parse(JSON.parse(whole.data)).data).toHaveLength(2);
  await cluster.agents[1]?.stop();
  const gone = await eventually('gone', 30_000, () => nodes.events.find(({ event }) => event === 'gone'));
  expect(whole.data).toContain(JSON.parse(gone.data).session);
  const summary = await eventually('the model has one', 30_000, () =>
    models.events.find(({ data }) => data.includes('"serving":1')),
  );
  expect(summary.event).toBe('snapshot');
  await Promise.all([nodes.close(), models.close()]);
});
