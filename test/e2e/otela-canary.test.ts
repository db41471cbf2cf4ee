/** `otela canary`: compares the usage that engines report inside the seal with what the gateway recorded. */
import { afterEach, expect, it } from 'vitest';
import { main } from '../../clients/otela/main.ts';
import { startAgent } from '../support/agent.ts';
import { endAll } from '../support/processes.ts';
import { providerRoot } from '../support/provider-root.ts';
import { MODEL, openTestCluster } from '../support/test-cluster.ts';

afterEach(async () => {
  delete process.env.OTELA_API_KEY;
  delete process.env.OTELA_KEY;
  await endAll();
});

async function canary(gateway: string, pin: string): Promise<{ code: number; said: string }> {
  const lines: string[] = [];
  const out = { print: (line: string) => void lines.push(line), complain: (line: string) => void lines.push(line) };
  const args = ['canary', '--gateway', gateway, '--model', MODEL, '--pin', pin, '--times', '2'];
  return { code: await main(args, out), said: lines.join('\n') };
}

it('finds no difference where both count alike, and one where something else is booked', async () => {
  const root = await providerRoot('lab');
  const cluster = await openTestCluster({ nodes: 2, agentArgs: ['--delegate-file', root.delegateFile] });
  process.env.OTELA_API_KEY = await cluster.gateway.createKey('canary');
  const alike = await canary(cluster.gateway.url, `lab=${root.pin}`);
  expect(alike.said).toMatch(/^2 nodes reported 4 requests, (\d+ \+ \d+ tokens); recorded 4 requests, \1$/);
  expect(alike.code).toBe(0);
  // Simulates a gateway that records more than nodes reported, by another request with the same key.
  const padding = cluster.ask(
    '/v1/chat/completions',
    { model: MODEL, messages: [{ role: 'user', content: 'x' }] },
    {
      headers: { authorization: `Bearer ${process.env.OTELA_API_KEY}` },
    },
  );
  const [more] = await Promise.all([canary(cluster.gateway.url, `lab=${root.pin}`), padding.then((one) => one.text())]);
  expect([more.code, more.said.includes('differ')]).toEqual([1, true]);
});

it('leaves nodes of other providers alone, and names one that no delegate vouches for', async () => {
  const root = await providerRoot('lab');
  const cluster = await openTestCluster({ agentArgs: ['--delegate-file', root.delegateFile] });
  // The earlier name of the variable still works.
  process.env.OTELA_KEY = await cluster.gateway.createKey('canary');
  const [other, own] = [await cluster.gateway.createJoinToken('psi', 'merlin'), cluster.token];
  const start = (token: string) =>
    startAgent({ gateways: [cluster.gateway.url], token, engineUrl: cluster.engine.url });
  await start(other);
  await cluster.gateway.serving(2);
  const alone = await canary(cluster.gateway.url, `lab=${root.pin}`);
  expect([alone.code, alone.said]).toEqual([0, expect.stringMatching(/^1 nodes reported 2 requests/)]);
  await start(own);
  await cluster.gateway.serving(3);
  const bare = await canary(cluster.gateway.url, `lab=${root.pin}`);
  expect([bare.code, bare.said]).toEqual([
    1,
    expect.stringMatching(/^\w+ of lab: No node .*\n2 nodes reported 2 requests/),
  ]);
});
