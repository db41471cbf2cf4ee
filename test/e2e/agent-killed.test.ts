/**
 * An agent that is killed (SIGKILL, out of memory): gateways learn it from the record that it left behind, so no
 * request waits for it to dial again.
 */
import { afterEach, expect, it } from 'vitest';
import { z } from 'zod';
import { endAll, eventually } from '../support/processes.ts';
import { chatBody, envelopeOf, openTestCluster, type TestCluster } from '../support/test-cluster.ts';

afterEach(endAll);

const historySchema = z.object({ data: z.array(z.looseObject({ event: z.string(), reason: z.string().nullable() })) });

/**
 * Asserts that the gateways were notified. Otherwise the session ends as unreachable, after the time in which the agent
 * may claim its streams.
 */
async function wasTold({ gateway }: TestCluster): Promise<void> {
  const left = await eventually('a node has left', 10_000, async () => {
    const { data } = historySchema.parse(await gateway.admin('GET', 'nodes/history'));
    return data.find(({ event }) => event === 'left');
  });
  expect(left.reason).toBe('killed');
}

it('a stream that cannot be continued ends with an error at once, and not after the time in which its agent could have come back', async () => {
  const cluster = await openTestCluster();
  const response = await cluster.ask(
    '/v1/chat/completions',
    chatBody({ tokens: 500, tokensPerSecond: 20 }, { stream: true }),
  );
  const reader = response.body?.getReader();
  await reader?.read();
  cluster.agents[0]?.signal('SIGKILL');
  let text = '';
  for (let chunk = await reader?.read(); chunk?.done === false; chunk = await reader?.read())
    text += new TextDecoder().decode(chunk.value);
  expect(text).toContain('"code":"upstream_error"');
  expect(text).not.toContain('[DONE]');
  await wasTold(cluster);
});

it('a unary request goes to the other node at once', async () => {
  const cluster = await openTestCluster({ nodes: 2 });
  const pending = cluster.ask('/v1/chat/completions', chatBody({ tokens: 100, tokensPerSecond: 20 }));
  const busy = await eventually('an engine has it', 5_000, () => {
    const at = cluster.engines.findIndex((engine) => engine.running() > 0);
    return at < 0 ? undefined : at;
  });
  cluster.agents[busy]?.signal('SIGKILL');
  const response = await pending;
  expect(response.status).toBe(200);
  expect(response.headers.get('x-otela-attempts')).toBe('2');
  await wasTold(cluster);
});

it('with one node a unary request waits for as long as requests may wait, and SDKs are told not to wait once more', async () => {
  const cluster = await openTestCluster({ gateway: { queue: { unary_ms: 3_000, stream_ms: 3_000 } } });
  const pending = cluster.ask('/v1/chat/completions', chatBody({ tokens: 500, tokensPerSecond: 20 }));
  await eventually('the engine has it', 5_000, () => (cluster.engine.running() > 0 ? true : undefined));
  cluster.agents[0]?.signal('SIGKILL');
  const response = await pending;
  expect(response.status).toBe(503);
  expect((await envelopeOf(response)).code).toBe('no_capacity');
  expect(response.headers.get('x-should-retry')).toBe('false');
  await wasTold(cluster);
});
