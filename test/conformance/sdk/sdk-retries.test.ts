/** SDKs retry a failed request twice. That must not multiply the gateway's own retries and waits. */
import OpenAI from 'openai';
import { afterEach, expect, it } from 'vitest';
import { endAll, eventually } from '../../support/processes.ts';
import { chatBody, MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

afterEach(endAll);

const ask = (cluster: TestCluster) =>
  new OpenAI({ baseURL: cluster.base, apiKey: cluster.key, maxRetries: 2 }).chat.completions.create({
    model: MODEL,
    messages: [{ role: 'user', content: 'Say something.' }],
  });
const asked = (cluster: TestCluster) =>
  cluster.engines.flatMap(({ requests }) => requests).filter(({ url }) => url.endsWith('/completions')).length;

it('a request that breaks every engine that takes it breaks each of three once', async () => {
  const cluster = await openTestCluster({ nodes: 3 });
  for (const engine of cluster.engines) engine.control({ fault: 'reset', afterTokens: 2 });
  await expect(ask(cluster)).rejects.toMatchObject({ status: 502, code: 'upstream_error' });
  expect(asked(cluster)).toBe(3);
});

it('a request that the only engine broke off is sent again by the SDK, and answered', async () => {
  const cluster = await openTestCluster();
  cluster.engine.control({ fault: 'reset', afterTokens: 2 }, 1);
  expect((await ask(cluster)).choices[0]?.message.content).toContain('stand-in');
  expect(asked(cluster)).toBe(2);
});

it('a request that an engine did not begin to answer in time is not sent again', async () => {
  const cluster = await openTestCluster();
  await cluster.gateway.admin('PUT', `models/${encodeURIComponent(MODEL)}`, { first_byte_ms: 1_500 });
  cluster.engine.control({ fault: 'never' });
  await eventually('the time-out of the model is known', 20_000, async () => {
    const init = { signal: AbortSignal.timeout(4_000) };
    const response = await cluster.ask('/v1/chat/completions', chatBody({}), init).catch(() => undefined);
    return response?.status === 504 ? true : undefined;
  });
  const before = asked(cluster);
  await expect(ask(cluster)).rejects.toMatchObject({ status: 504, code: 'upstream_timeout' });
  expect(asked(cluster) - before).toBe(1);
});
