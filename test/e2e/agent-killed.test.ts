/** An agent that is killed (SIGKILL, out of memory): gateways are told by what it leaves behind, and nobody waits for it to dial again. */
import { afterEach, expect, it } from 'vitest';
import { chatBody, envelopeOf, openHouse } from '../support/house.ts';
import { endAll, eventually } from '../support/processes.ts';

afterEach(endAll);

/** The agent's window to claim a stream is 10 s; starting one small process on two busy cores takes a good second. */
const TOLD_MS = 9_500;

it('a stream that cannot be continued ends with an error at once, and not after the time in which its agent could have come back', async () => {
  const house = await openHouse();
  const response = await house.ask(
    '/v1/chat/completions',
    chatBody({ tokens: 500, tokensPerSecond: 20 }, { stream: true }),
  );
  const reader = response.body?.getReader();
  await reader?.read();
  house.agents[0]?.signal('SIGKILL');
  const killedAt = Date.now();
  let text = '';
  for (let chunk = await reader?.read(); chunk?.done === false; chunk = await reader?.read())
    text += new TextDecoder().decode(chunk.value);
  expect(Date.now() - killedAt).toBeLessThan(TOLD_MS);
  expect(text).toContain('"code":"upstream_error"');
  expect(text).not.toContain('[DONE]');
  await eventually('the node has left', 3_000, async () => {
    const [node] = await house.gateway.nodes();
    return node?.state === 'LEFT' ? true : undefined;
  });
});

it('a unary request goes to the other node at once', async () => {
  const house = await openHouse({ nodes: 2 });
  const pending = house.ask('/v1/chat/completions', chatBody({ tokens: 100, tokensPerSecond: 20 }));
  const busy = await eventually('an engine has it', 5_000, () => {
    const at = house.engines.findIndex((engine) => engine.running() > 0);
    return at < 0 ? undefined : at;
  });
  house.agents[busy]?.signal('SIGKILL');
  const killedAt = Date.now();
  const response = await pending;
  expect(response.status).toBe(200);
  expect(response.headers.get('x-otela-attempts')).toBe('2');
  expect(Date.now() - killedAt).toBeLessThan(TOLD_MS + 5_000); // 100 tokens take 5 s
});

it('with one node a unary request waits for as long as requests may wait, and SDKs are told not to wait once more', async () => {
  const house = await openHouse({ gateway: { queue: { unary_ms: 3_000, stream_ms: 3_000 } } });
  const pending = house.ask('/v1/chat/completions', chatBody({ tokens: 500, tokensPerSecond: 20 }));
  await eventually('the engine has it', 5_000, () => (house.engine.running() > 0 ? true : undefined));
  house.agents[0]?.signal('SIGKILL');
  const killedAt = Date.now();
  const response = await pending;
  expect(response.status).toBe(503);
  expect((await envelopeOf(response)).code).toBe('no_capacity');
  expect(response.headers.get('x-should-retry')).toBe('false');
  expect(Date.now() - killedAt).toBeLessThan(TOLD_MS + 3_000);
});
