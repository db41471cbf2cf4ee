/**
 * `--policy FILE.ts`: an operator's policy chooses the nodes; a policy that throws fails no request and is reported; an
 * invalid one stops the start.
 */
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, endAll, eventually, Managed, temporaryDirectory } from '../support/processes.ts';
import { chatBody, MODEL, openTestCluster } from '../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE, ROOT } from '../support/where.ts';

afterEach(endAll);

async function policyFile(text: string): Promise<string> {
  const file = join(await temporaryDirectory('otela-policy'), 'mine.ts');
  await writeFile(file, text);
  return file;
}

/** A policy that always chooses the session that sorts last. It has types, so that Node must strip them. */
const LAST = `
interface Node { session: string }
export const policy = {
  name: 'last',
  pick: (nodes: readonly Node[]): Node | undefined => nodes.toSorted((a, b) => a.session < b.session ? -1 : 1).at(-1),
};
`;

test('a gateway’s own policy chooses, also by its name in settings', async () => {
  const cluster = await openTestCluster({ nodes: 2, gateway: { args: ['--policy', await policyFile(LAST)] } });
  const sessions = (await cluster.gateway.nodes()).map(({ session }) => session).sort();
  const served = async () => {
    const response = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 1 }));
    await response.text();
    return response.headers.get('x-otela-node');
  };
  for (let n = 0; n < 5; n++) expect(await served()).toBe(sessions.at(-1));
  await cluster.gateway.admin('PATCH', 'settings', { routing: { policy: 'last' } });
  await expect(cluster.gateway.admin('PATCH', 'settings', { routing: { policy: 'lost' } })).rejects.toThrow(
    /must be one of .*last/,
  );
});

test('one that throws is told of in log and metrics, and every request is served', async () => {
  const file = await policyFile("export const policy = { name: 'bad', pick() { throw new Error('not today'); } };\n");
  const cluster = await openTestCluster({ gateway: { args: ['--policy', file] } });
  for (let n = 0; n < 5; n++) {
    const response = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 1 }));
    expect([response.status, (await response.text()).length > 0]).toEqual([200, true]);
  }
  expect(cluster.gateway.process.output).toMatch(/policy bad: Error: not today/);
  await eventually('the faults are counted', 10_000, async () =>
    (await cluster.gateway.metric('otela_policy_faults_total', '{policy="bad",kind="threw"}')) === 3 ? true : undefined,
  );
});

test('one that cannot be loaded stops the start of a gateway and of an agent, with file and line', async () => {
  const file = await policyFile('export const name = 1;\nexport const policy = ;\n');
  const gateway = new Managed(
    [NODE, GATEWAY_MAIN, 'serve', '--port', '0', '--data', await temporaryDirectory(), '--policy', file],
    { cwd: ROOT },
  );
  expect((await gateway.end(30_000)).code).not.toBe(0);
  expect(gateway.output).toContain(`${file}:2: `);
  const agent = await startAgent({
    gateways: ['http://127.0.0.1:1'],
    token: 'x'.repeat(20),
    args: ['--ingress', '127.0.0.1:0', '--policy', file],
  });
  expect((await agent.end(30_000)).code).toBe(2);
  expect(agent.output).toContain(`${file}:2: `);
});

test('an agent’s ingress asks where its file says', async () => {
  const gateway = await Gateway.start();
  const token = await gateway.createJoinToken();
  const state = await temporaryDirectory('otela-agent-state');
  const agentWith = async (more: { args?: string[]; env?: Record<string, string> }) => {
    const engine = await startEngine({ models: [MODEL] });
    atEnd(() => engine.close());
    return startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, ...more });
  };
  const args = ['--ingress', '127.0.0.1:0', '--policy', await policyFile(LAST)];
  const asking = await agentWith({ args, env: { XDG_RUNTIME_DIR: state } });
  await agentWith({});
  const [, url] = await asking.line(/ingress (http\S+), its key is in/, 20_000);
  const last = (await gateway.serving(2))
    .map(({ session }) => session)
    .sort()
    .at(-1);
  // The agent's directory has the name of the session; next to it is the usage of the agent's ingress.
  const own = (await readdir(join(state, 'otela-agent'))).find((name) => name !== 'usage') ?? '';
  const key = (await readFile(join(state, 'otela-agent', own, 'ingress.key'), 'utf8')).trim();
  await eventually('the ingress asks the last node', 20_000, async () => {
    const response = await fetch(`${url}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(chatBody({ tokens: 1 })),
    });
    await response.text();
    return response.headers.get('x-otela-node') === last ? true : undefined;
  });
});
