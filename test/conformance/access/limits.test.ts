/** Limits and usage as clients and operators see them. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import OpenAI from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { limitSince } from '../../support/patience.ts';
import { endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { chatBody, envelopeOf, MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster();
});
afterAll(endAll);

const make = (body: object) =>
  cluster.gateway.admin('POST', 'keys', { name: 'k', ...body }) as Promise<{ id: string; key: string }>;
const ask = (key: string, standIn: object = { tokens: 1 }, more: object = {}, headers: Record<string, string> = {}) =>
  cluster.ask('/v1/chat/completions', chatBody(standIn, more), {
    headers: { authorization: `Bearer ${key}`, ...headers },
  });

async function statuses(answers: Promise<Response>[]): Promise<number[]> {
  const done = await Promise.all(answers);
  await Promise.all(done.map((answer) => answer.text()));
  return done.map(({ status }) => status);
}

it('of a hundred requests at once on ten a minute ten get through; the others are told when to come again', async () => {
  const { key } = await make({ limits: { requests_per_minute: 10 } });
  const askedAt = Date.now();
  const first = await ask(key);
  expect(first.headers.get('x-ratelimit-limit-requests')).toBe('10');
  expect(first.headers.get('x-ratelimit-remaining-requests')).toBe('9');
  await first.text();
  const all = await statuses(Array.from({ length: 99 }, () => ask(key)));
  expect(all.filter((status) => status === 200 || status === 429)).toHaveLength(99);
  const through = all.filter((status) => status === 200).length;
  expect(through).toBeGreaterThanOrEqual(9);
  expect(through).toBeLessThanOrEqual(limitSince(10, askedAt) - 1);
  const refused = await ask(key);
  expect((await envelopeOf(refused)).code).toBe('rate_limit_exceeded');
  const wait = Number(refused.headers.get('retry-after'));
  expect(wait).toBeGreaterThan(0);
  expect(wait).toBeLessThanOrEqual(60);
  expect(refused.headers.get('x-ratelimit-remaining-requests')).toBe('0');
});

it('of a hundred at once on ten at once ten get through, streams and whole answers, and the next one after them', async () => {
  for (const stream of [true, false]) {
    const { key } = await make({ limits: { concurrent_requests: 10 } });
    // None ends before the others were refused: that would free its place.
    const gate = join(await temporaryDirectory('otela-gate'), 'open');
    const answered: number[] = [];
    const count = (wanted: number) => answered.filter((status) => status === wanted).length;
    const call = async () => {
      const response = await ask(key, { tokens: 3, gate }, { stream });
      answered.push(response.status);
      return response;
    };
    const all = statuses(Array.from({ length: 100 }, call));
    try {
      await eventually('90 refusals', 20_000, () => {
        if (count(429) >= 90 || count(429) + count(200) < answered.length) return true;
        throw new Error(`answered so far: ${answered}`);
      });
    } finally {
      await writeFile(gate, '');
      await all;
    }
    expect([count(200), count(429)], `${answered}`).toEqual([10, 90]);
    // One after the other, each at the last byte of the previous response.
    const one = await make({ limits: { concurrent_requests: 1 } });
    for (let n = 0; n < 10; n++) expect(await statuses([ask(one.key, { tokens: 2 }, { stream })])).toEqual([200]);
  }
});

it('a client that leaves gives its place back', async () => {
  const { key } = await make({ limits: { concurrent_requests: 1 } });
  const client = new AbortController();
  const init = { signal: client.signal, headers: { authorization: `Bearer ${key}` } };
  const body = chatBody({ tokens: 10_000, tokensPerSecond: 20 }, { stream: true });
  const response = await cluster.ask('/v1/chat/completions', body, init);
  expect(response.status).toBe(200);
  expect((await ask(key)).status).toBe(429);
  client.abort();
  await eventually('its place', 5_000, async () => ((await statuses([ask(key)]))[0] === 200 ? true : undefined));
});

it('a refused body and an unknown model cost no place and no tokens', async () => {
  const { key } = await make({ limits: { concurrent_requests: 1, tokens_per_minute: 2_000 } });
  for (let n = 0; n < 20; n++) {
    const init = { headers: { authorization: `Bearer ${key}` } };
    expect((await cluster.ask('/v1/chat/completions', '{', init)).status).toBe(400);
    expect((await ask(key, {}, { model: 'no/such' })).status).toBe(404);
  }
  const response = await ask(key);
  expect(response.status).toBe(200);
  expect(Number(response.headers.get('x-ratelimit-remaining-tokens'))).toBeGreaterThan(1_000);
});

it('a month that is used up is insufficient_quota, which no SDK retries, for the whole project', async () => {
  const project = (await cluster.gateway.admin('POST', 'projects', {
    name: 'p',
    limits: { tokens_per_month: 1_000 },
  })) as {
    id: string;
  };
  const [one, two] = [await make({ project_id: project.id }), await make({ project_id: project.id })];
  expect(await statuses([ask(one.key, { tokens: 1_200 }, { max_tokens: 2_000 })])).toEqual([200]);
  await eventually('the settlement', 10_000, async () => {
    const response = await ask(two.key);
    await response.text();
    return response.status === 429 ? true : undefined;
  });
  const before = cluster.engine.requests.length;
  const client = new OpenAI({ apiKey: two.key, baseURL: cluster.base });
  const failed = await client.chat.completions
    .create({ model: MODEL, messages: [{ role: 'user', content: 'a' }] })
    .catch((error: unknown) => error);
  expect(failed).toMatchObject({ status: 429, code: 'insufficient_quota' });
  expect(cluster.engine.requests.length, 'asked once, and nobody was reached').toBe(before);
  // A changed limit takes effect within seconds.
  await cluster.gateway.admin('PATCH', `projects/${project.id}`, { limits: { tokens_per_month: 1_000_000 } });
  await eventually('the new limit', 5_000, async () =>
    (await statuses([ask(two.key)]))[0] === 200 ? true : undefined,
  );
});

it('a request that may be endless, in numbers beyond what can be counted, opens no month', async () => {
  const { key } = await make({ limits: { tokens_per_month: 50 } });
  const endless = { max_tokens: 1e308, n: 1e308 };
  expect(await statuses([ask(key, { tokens: 3 }, endless)])).toEqual([200]);
  const answered = (status: number) => async () =>
    (await statuses([ask(key, { tokens: 3 })]))[0] === status ? true : undefined;
  await eventually('the settlement', 10_000, answered(200));
  await eventually('the end of its month', 10_000, answered(429));
  const refused = await ask(key);
  expect((await envelopeOf(refused)).code).toBe('insufficient_quota');
  expect(refused.headers.get('x-ratelimit-remaining-tokens-month')).toBe('0');
});

interface Totals {
  data: {
    requests: number;
    prompt_tokens: number;
    completion_tokens: number;
    model?: string;
    provider?: string;
    key?: string;
  }[];
}
const usage = async (query: string) => (await cluster.gateway.admin('GET', `usage?${query}`)) as Totals;

it('what a key used is in the totals, token by token, and stays there through a kill -9', async () => {
  const { id, key } = await make({});
  let [prompt, completion] = [0, 0];
  const six = async () => {
    for (let n = 1; n <= 6; n++) {
      const response = await ask(key, { tokens: n });
      const said = (await response.json()) as { usage: { prompt_tokens: number; completion_tokens: number } };
      prompt += said.usage.prompt_tokens;
      completion += said.usage.completion_tokens;
    }
  };
  const totals = (requests: number) =>
    eventually(`${requests} in the totals`, 20_000, async () => {
      const { data } = await usage(`group_by=key,model,provider&key=${id}`);
      return data[0]?.requests === requests ? data : undefined;
    });
  await six();
  await totals(6);
  // At the kill, some of these reports are at the agent, some in its object, and some in the object of the hour.
  await six();
  await cluster.gateway.kill9();
  await cluster.gateway.restart();
  await cluster.gateway.serving(1);
  expect(await totals(12)).toEqual([
    expect.objectContaining({
      key: id,
      model: MODEL,
      provider: 'lab',
      prompt_tokens: prompt,
      completion_tokens: completion,
    }),
  ]);
});

it('who may opt out leaves nothing but what limits need; who may not is told', async () => {
  const tracked = await make({});
  const refused = await ask(tracked.key, {}, {}, { 'x-otela-no-track': '1' });
  expect((await envelopeOf(refused)).code).toBe('permission_denied');
  const unclear = await ask(tracked.key, {}, {}, { 'x-otela-no-track': 'true' });
  expect(await envelopeOf(unclear)).toMatchObject({ code: 'invalid_request', param: 'x-otela-no-track' });
  const { id, key } = await make({ no_track: true, limits: { tokens_per_month: 50 } });
  const call = () => ask(key, { tokens: 60 }, { max_tokens: 100 }, { 'x-otela-no-track': '1' });
  expect(await statuses([call()])).toEqual([200]);
  await eventually('the budget', 10_000, async () => ((await statuses([call()]))[0] === 429 ? true : undefined));
  const seen = await ask(tracked.key);
  await seen.text();
  await eventually('the tracked one', 10_000, async () => {
    // One answered request, and the two that were refused because of their header.
    return (await usage(`key=${tracked.id}`)).data[0]?.requests === 3 ? true : undefined;
  });
  expect((await usage(`key=${id}`)).data).toEqual([]);
});
