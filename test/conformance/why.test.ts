/** The timeline of a request, by the id that its client received, on both hosts. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import * as z from 'zod';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { atEnd, endAll, eventually } from '../support/processes.ts';
import { chatBody, MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster();
});
afterAll(endAll);

const storySchema = z.object({
  data: z.array(
    z.looseObject({
      request_id: z.string(),
      usage_id: z.string(),
      steps: z.array(z.object({ at: z.iso.datetime(), where: z.string(), text: z.string() })),
      not_known: z.array(z.string()),
    }),
  ),
});
const read = (id: string, key: string) =>
  fetch(`${cluster.gateway.url}/admin/requests/${id}`, { headers: { authorization: `Bearer ${key}` } });

/** Resolves after its node has reported. */
function storyOf(id: string, key = cluster.gateway.adminKey) {
  return eventually(`the story of ${id}`, 20_000, async () => {
    const answer = await read(id, key);
    if (!answer.ok) return undefined;
    const [story] = storySchema.parse(await answer.json()).data;
    return story?.steps.some(({ where }) => where === 'record') ? story : undefined;
  });
}
const texts = (story: Awaited<ReturnType<typeof storyOf>>) =>
  story.steps.map(({ where, text }) => `${where}: ${text}`).join('\n');

it('of a quick success: its record, and that no more is kept', async () => {
  const answer = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 3 }));
  await answer.text();
  const story = await storyOf(answer.headers.get('x-request-id') ?? '');
  expect(texts(story)).toMatch(/record: attempt 1 at node \w+: status 200; \d+ input tokens.*, 3 output tokens/);
  expect(story.not_known.join()).toContain('stores only the usage record');
});

it('by an id that the client chose: the gateway’s own words, the attempt and the record, to the key that sent it', async () => {
  const id = `my-request-${Date.now()}`;
  const answer = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 2 }), {
    headers: { 'x-request-id': id },
  });
  await answer.text();
  const story = await storyOf(id, cluster.key);
  expect(story.usage_id).not.toBe(id);
  expect(texts(story)).toMatch(/gateway: came: chat\/completions for .*, with key key_/);
  expect(texts(story)).toMatch(/attempt: node \w+: its engine answered 200/);
  expect(texts(story)).toMatch(/gateway: ended after \d+ ms: status 200/);
  expect(texts(story)).toMatch(/record: attempt 1/);
  const other = await cluster.gateway.createKey();
  expect((await read(id, other)).status).toBe(404);
});

it('of one that was refused: why, and that no engine saw it', async () => {
  const answer = await cluster.ask('/v1/chat/completions', { ...chatBody(), model: 'no/such-model' });
  expect(answer.status).toBe(404);
  const id = answer.headers.get('x-request-id') ?? '';
  const body = await eventually('its story', 20_000, async () => {
    const told = await read(id, cluster.gateway.adminKey);
    return told.ok ? storySchema.parse(await told.json()) : undefined;
  });
  expect(body.data[0]?.steps.map(({ text }) => text).join('\n')).toMatch(/status 404, model_not_found/);
});

it('of an engine that fails: its status, and never a word of the prompt', async () => {
  const secret = 'a prompt that must not be kept';
  const body = { ...chatBody({ status: 500 }), messages: [{ role: 'user', content: secret }] };
  const answer = await cluster.ask('/v1/chat/completions', body);
  await answer.text();
  const id = answer.headers.get('x-request-id') ?? '';
  const text = await eventually('its story', 20_000, async () => {
    const told = await read(id, cluster.gateway.adminKey);
    return told.ok ? told.text() : undefined;
  });
  expect(text).not.toContain(secret);
  expect(text).toContain(MODEL);
});

it('nothing on record is 404, what is no id is refused, and without a key nobody is told', async () => {
  expect((await read('never-seen', cluster.gateway.adminKey)).status).toBe(404);
  expect((await read(encodeURIComponent('a b\n'), cluster.gateway.adminKey)).status).toBe(400);
  expect((await read('never-seen', 'sk-wrong')).status).toBe(401);
});

it('of ids that are no one’s, a consumer has records searched one after the other, and an operator as often as wanted', async () => {
  const key = await cluster.gateway.createKey();
  const codes = new Set<number>();
  for (let n = 0; n < 13; n++) codes.add((await read(`no-request-${n}`, key)).status);
  expect([...codes].sort()).toEqual([404, 429]);
  const last = await read('no-request', key);
  expect([last.status, Number(last.headers.get('retry-after')) > 0]).toEqual([429, true]);
  for (let n = 0; n < 13; n++) expect((await read(`no-request-${n}`, cluster.gateway.adminKey)).status).toBe(404);
  const other = await cluster.gateway.createKey();
  expect((await read('no-request', other)).status).toBe(404);
});

it('of long ago: records are looked through before a time that is given', async () => {
  const answer = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 1 }));
  await answer.text();
  const id = answer.headers.get('x-request-id') ?? '';
  await storyOf(id);
  const before = await read(
    `${id}?to=${new Date(Date.now() - 30 * 86_400_000).toISOString()}`,
    cluster.gateway.adminKey,
  );
  expect([before.status, await before.text()]).toEqual([404, expect.stringContaining('24 hours before 20')]);
  const soonAfter = new Date(Date.now() + 3_600_000).toISOString();
  expect((await read(`${id}?hours=2&to=${soonAfter}`, cluster.gateway.adminKey)).status).toBe(200);
  expect((await read(`${id}?to=yesterday`, cluster.gateway.adminKey)).status).toBe(400);
});

it('of a choice between tiers: the tier of the node that the request’s class prefers', async () => {
  const other = await startEngine({ models: [MODEL] });
  atEnd(() => other.close());
  const { gateway } = cluster;
  const token = await gateway.createJoinToken();
  await startAgent({ gateways: [gateway.url], token, engineUrl: other.url, args: ['--tier', 'volatile'] });
  await gateway.serving(2);
  const nodes = new Map((await gateway.nodes()).map(({ session, tier }) => [tier, session]));
  expect([...nodes.keys()].sort()).toEqual(['stable', 'volatile']);
  for (const [priority, tier, who] of [
    ['interactive', 'stable', 'interactive requests'],
    ['batch', 'volatile', 'batches'],
  ] as const) {
    const id = `my-${priority}-${Date.now()}`;
    const headers = { 'x-request-id': id, 'x-otela-priority': priority };
    await (await cluster.ask('/v1/chat/completions', chatBody({ tokens: 2 }), { headers })).text();
    const told = `attempt: node ${nodes.get(tier)} (${tier}, which ${who} prefer): its engine answered 200`;
    expect(texts(await storyOf(id, cluster.key))).toContain(told);
  }
});
