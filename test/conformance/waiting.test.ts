/**
 * Long waits: comments keep a stream open until the engine sends its first byte, and a queue's worth of streams runs
 * concurrently.
 */
import { afterEach, expect, it } from 'vitest';
import { stream } from '../support/load.ts';
import { endAll } from '../support/processes.ts';
import { chatBody, MODEL, openTestCluster } from '../support/test-cluster.ts';

afterEach(endAll);

it('a stream whose engine is silent for 20 s is opened with pings after 15 s and is whole in the end', async () => {
  const cluster = await openTestCluster();
  const startedAt = Date.now();
  const response = await cluster.ask(
    '/v1/chat/completions',
    chatBody({ delayMs: 20_000, tokens: 3 }, { stream: true }),
  );
  const openedAfter = Date.now() - startedAt;
  expect(response.status).toBe(200);
  expect(openedAfter).toBeGreaterThan(13_000);
  const text = await response.text();
  expect(text).toMatch(/^: ping/);
  expect(text).toMatch(/: otela node=\S+ attempts=1 provider=lab/);
  expect(text).toContain('This');
  expect(text).toContain('data: [DONE]');
});

it('a failure after the pings is told in the stream, in the endpoint’s own form', async () => {
  const cluster = await openTestCluster();
  cluster.engine.control({ delayMs: 20_000, status: 500 });
  const [openai, anthropic] = await Promise.all([
    cluster.ask('/v1/chat/completions', chatBody({}, { stream: true })).then((response) => response.text()),
    cluster.ask('/v1/messages', chatBody({}, { stream: true, max_tokens: 9 })).then((response) => response.text()),
  ]);
  expect(openai).toMatch(/data: \{"error":/);
  expect(openai).not.toContain('[DONE]');
  expect(anthropic).toMatch(/event: error\ndata: \{"type":"error"/);
});

it('speech that takes its time is no event stream, whatever its request says: no ping stands in it', async () => {
  const cluster = await openTestCluster();
  cluster.engine.control({ delayMs: 18_000 });
  const init = { headers: { 'x-otela-model': MODEL, 'x-otela-stream': '1' } };
  const response = await cluster.ask('/v1/audio/speech', { model: MODEL, input: 'Hello.', voice: 'any' }, init);
  expect(response.headers.get('content-type')).toBe('audio/wav');
  expect(await response.text()).not.toContain('ping');
});

it('256 streams at once are all whole', async () => {
  const cluster = await openTestCluster();
  const results = await Promise.all(
    Array.from({ length: 256 }, () => stream(cluster, { tokens: 60, tokensPerSecond: 30 })),
  );
  const broken = results.filter((result) => !result.done || result.error !== undefined || result.status !== 200);
  expect(broken).toEqual([]);
});
