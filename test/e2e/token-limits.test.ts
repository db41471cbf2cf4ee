/** Tokens per minute, through the public API: which requests pass, and whether the announced waits are accurate. */

import { afterAll, beforeAll, expect, it } from 'vitest';
import { limitSince } from '../support/patience.ts';
import { endAll } from '../support/processes.ts';
import { chatBody, envelopeOf, openTestCluster, type TestCluster } from '../support/test-cluster.ts';

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster();
});
afterAll(endAll);

const keyWith = async (limits: object) =>
  ((await cluster.gateway.admin('POST', 'keys', { name: 'k', limits })) as { key: string }).key;

const ask = (key: string, standIn: object, more: object = {}) =>
  cluster.ask('/v1/chat/completions', chatBody(standIn, more), { headers: { authorization: `Bearer ${key}` } });

/** Tokens of a request that passed, by the engine's count. */
async function tokensOf(answer: Response): Promise<number> {
  if (answer.status !== 200) {
    await answer.text();
    return 0;
  }
  const { usage } = (await answer.json()) as { usage: { total_tokens: number } };
  return usage.total_tokens;
}

async function passed(count: number, call: () => Promise<Response>): Promise<number> {
  const all = await Promise.all(Array.from({ length: count }, async () => tokensOf(await call())));
  return all.reduce((sum, one) => sum + one, 0);
}

it('retry-after names the second in which the oldest tokens of the minute are a minute old', async () => {
  const key = await keyWith({ tokens_per_minute: 1_000 });
  const from = Date.now();
  const sum = await passed(20, () => ask(key, { tokens: 90 }, { max_tokens: 90 }));
  const all = Date.now();
  expect(sum).toBeGreaterThanOrEqual(900);
  const refused = await ask(key, { tokens: 90 }, { max_tokens: 90 });
  const at = Date.now() + Number(refused.headers.get('retry-after')) * 1_000;
  expect(refused.headers.get('x-ratelimit-remaining-tokens')).toMatch(/^\d{1,2}$/);
  expect((await envelopeOf(refused)).code).toBe('rate_limit_exceeded');
  expect(at).toBeGreaterThanOrEqual(from + 60_000);
  expect(at).toBeLessThanOrEqual(all + 61_000);
});

it('an answer that may be above the limit is refused for good, with words that say what to lower', async () => {
  const key = await keyWith({ tokens_per_minute: 1_000 });
  for (let n = 0; n < 3; n++) {
    const refused = await ask(key, { tokens: 2_000 }, { max_tokens: 2_000 });
    expect(refused.status).toBe(429);
    expect([refused.headers.get('retry-after'), refused.headers.get('x-should-retry')]).toEqual([null, 'false']);
    expect(await envelopeOf(refused)).toMatchObject({ code: 'rate_limit_exceeded', param: 'max_tokens' });
  }
  expect(await tokensOf(await ask(key, { tokens: 500 }, { max_tokens: 500 }))).toBeGreaterThan(500);
});

it('what an engine refuses costs no tokens', async () => {
  const key = await keyWith({ tokens_per_minute: 1_000 });
  for (let n = 0; n < 5; n++) {
    const refused = await ask(key, { status: 422 }, { max_tokens: 900 });
    expect(refused.status).toBe(422);
    await refused.text();
  }
  const response = await ask(key, { tokens: 1 }, { max_tokens: 900 });
  expect(response.status).toBe(200);
});

it.each([
  { limit: 10_000, tokens: 90, max: 90, requests: 150 },
  { limit: 10_000, tokens: 90, max: 500, requests: 150 },
  { limit: 10_000, tokens: 90, max: undefined, requests: 150 },
  { limit: 2_000, tokens: 90, max: undefined, requests: 100 },
  { limit: 20_000, tokens: 700, max: undefined, requests: 100 },
])(
  'of $requests requests at once $limit tokens a minute pass, with a tenth of error at most: answers of $tokens, max_tokens $max',
  async ({ limit, tokens, max, requests }) => {
    const key = await keyWith({ tokens_per_minute: limit });
    const askedAt = Date.now();
    const sum = await passed(requests, () => ask(key, { tokens }, max === undefined ? {} : { max_tokens: max }));
    expect(sum).toBeGreaterThanOrEqual(limit * 0.9);
    expect(sum).toBeLessThanOrEqual(limitSince(limit, askedAt) * 1.1);
  },
);
