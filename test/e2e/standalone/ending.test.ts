/** A gateway that gets a signal to end while it answers. */
import { afterEach, expect, it } from 'vitest';
import { Gateway } from '../../support/gateway.ts';
import { promise } from '../../support/patience.ts';
import { endAll } from '../../support/processes.ts';
import { raw } from '../../support/raw.ts';
import { chatBody, openTestCluster } from '../../support/test-cluster.ts';

afterEach(endAll);

it('lets an engine that says nothing yet finish its answer', async () => {
  const cluster = await openTestCluster();
  const asked = cluster.ask('/v1/chat/completions', chatBody({ delayMs: 3_500, tokens: 2 }));
  await cluster.engine.when(({ bodySha256 }) => bodySha256 !== '', 5_000);
  cluster.gateway.process.signal('SIGTERM');
  const response = await asked;
  expect(response.status).toBe(200);
  expect(await response.text()).toContain('"finish_reason":"');
  expect(await cluster.gateway.process.end(5_000)).toEqual({ code: 0, signal: null });
});

it('does not wait for agents, whose tunnels and questions for lines of batches stay open as long as it does', async () => {
  const cluster = await openTestCluster();
  await (await cluster.ask('/v1/chat/completions', chatBody({ tokens: 2 }))).text();
  await new Promise((resolve) => setTimeout(resolve, 2_500)); // by then the agent has asked for lines, and its request is held
  const startedAt = Date.now();
  cluster.gateway.process.signal('SIGTERM');
  await cluster.gateway.process.end(5_000);
  expect(Date.now() - startedAt).toBeLessThan(promise(4_000));
});

it('refuses requests that wait for a node, so that their clients ask another gateway', async () => {
  const model = 'never/there';
  const gateway = await Gateway.start({ queue: { unary_ms: 30_000, stream_ms: 30_000 } });
  const key = await gateway.createKey();
  await gateway.admin('PUT', `models/${model}`, {}); // the operator expects nodes
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const waiting = ['', '?way=http'].flatMap((query) =>
    [false, true].map((stream) => {
      const body = JSON.stringify(chatBody({}, { model, stream }));
      return raw(`${gateway.url}/v1/chat/completions${query}`, { headers, body, withinMs: 20_000 });
    }),
  );
  await gateway.queued(waiting.length, model);
  gateway.process.signal('SIGTERM');
  for (const { status, headers: got, body } of await Promise.all(waiting)) {
    expect([status, got['retry-after'], got.connection]).toEqual([503, '1', 'close']);
    expect(JSON.parse(String(body))).toMatchObject({
      error: { type: 'service_unavailable_error', param: null, code: 'server_is_overloaded' },
    });
  }
  expect(await gateway.process.end(5_000)).toEqual({ code: 0, signal: null });
});
