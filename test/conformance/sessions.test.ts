/** An operator ends sessions: their agents return, or learn that they are not wanted. */
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import { load } from '../support/load.ts';
import { endAll, eventually } from '../support/processes.ts';
import { openTestCluster } from '../support/test-cluster.ts';

afterEach(endAll);

const tokensSchema = z.object({ data: z.array(z.object({ id: z.string() })) });

it('a session that an operator ends is followed by a new one of the same agent, and no request fails', async () => {
  const cluster = await openTestCluster({ nodes: 2 });
  const [first, other] = await cluster.gateway.serving(2);
  const traffic = load(cluster, 4);
  await cluster.gateway.admin('DELETE', `nodes/${first?.session}`);
  const now = await eventually('a new session serves', 20_000, async () => {
    const serving = await cluster.gateway.serving(2, 15_000);
    return serving.some(({ session }) => session === first?.session) ? undefined : serving;
  });
  expect(now.map(({ session }) => session)).toContain(other?.session);
  expect(cluster.agents.every(({ running }) => running)).toBe(true);
  const ended = (await cluster.gateway.nodes()).find(({ session }) => session === first?.session);
  expect(ended?.state).toBe('LEFT');
  await traffic.stop();
  expect(traffic.failures).toEqual([]);
});

it('an agent whose join token is revoked is out at once and ends with 69', async () => {
  const cluster = await openTestCluster();
  const { data } = tokensSchema.parse(await cluster.gateway.admin('GET', 'join-tokens'));
  for (const { id } of data) await cluster.gateway.admin('DELETE', `join-tokens/${id}`);
  const [agent] = cluster.agents;
  expect(await agent?.end(20_000)).toMatchObject({ code: 69 });
  expect(agent?.output).toContain('revoked');
  await eventually('the gateway says so', 5_000, async () =>
    (await cluster.gateway.nodes()).every(({ state }) => state === 'LEFT') ? true : undefined,
  );
});

it('an agent outlives a gateway that loses nothing: the same session serves again', async () => {
  const cluster = await openTestCluster();
  const [before] = await cluster.gateway.serving(1);
  await cluster.gateway.kill9();
  await cluster.gateway.restart();
  const [after] = await cluster.gateway.serving(1, 20_000);
  expect(after?.session).toBe(before?.session);
});
