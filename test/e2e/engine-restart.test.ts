/** The agent restarts an engine if its scheduler stalls, and does not restart an engine that is only slow. */
import { afterEach, expect, it } from 'vitest';
import { ENGINE_MAIN, startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { endAll, eventually, freePort } from '../support/processes.ts';
import { chatBody } from '../support/test-cluster.ts';
import { NODE } from '../support/where.ts';

afterEach(endAll);

const MODEL = 'hangs/once';

async function house() {
  const gateway = await Gateway.start();
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const port = await freePort();
  const args = ['--engine-probe-after', '1s', '--engine-probe-timeout', '2s'];
  const command = [NODE, ENGINE_MAIN, '--port', String(port), '--model', MODEL];
  const agent = await startAgent({ gateways: [gateway.url], token, args, command });
  const [node] = await gateway.serving(1, 20_000, MODEL);
  const ask = (standIn: object) =>
    fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(chatBody(standIn, { model: MODEL })),
    });
  const control = (behaviour: object) =>
    fetch(`http://127.0.0.1:${port}/__control`, { method: 'POST', body: JSON.stringify({ behaviour }) });
  return { gateway, agent, session: node?.session ?? '', ask, control };
}

it('an engine that hangs is started again by its command: what waits there goes back, the next request is answered, its output is at the gateway', async () => {
  const { gateway, agent, session, ask, control } = await house();
  await control({ fault: 'hang' });
  const given = await ask({ tokens: 2 });
  expect(given.status, await given.text()).toBe(502); // there is no other node
  await eventually('another session', 20_000, async () => {
    const [node] = await gateway.serving(1, 20_000, MODEL);
    return node?.session === session ? undefined : true;
  });
  expect((await ask({ tokens: 2 })).status).toBe(200);
  expect(agent.output).toContain('the engine hangs: it has sent nothing for');
  const headers = { authorization: `Bearer ${gateway.adminKey}` };
  const logs = await fetch(`${gateway.url}/admin/nodes/${session}/logs`, { headers });
  expect(await logs.text()).toContain(MODEL);
});

it('a prefill that takes longer than both settings is left alone where the engine gives the token', async () => {
  const { gateway, agent, session, ask } = await house();
  const response = await ask({ tokens: 1, delayMs: 6_000 });
  expect(response.status, await response.text()).toBe(200);
  expect((await gateway.serving(1, 5_000, MODEL))[0]?.session).toBe(session);
  expect(agent.output).not.toContain('the engine hangs');
});
