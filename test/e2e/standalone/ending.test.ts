/** A gateway that gets a signal to end while it answers. */
import { afterEach, expect, it } from 'vitest';
import { promise } from '../../support/patience.ts';
import { endAll } from '../../support/processes.ts';
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
