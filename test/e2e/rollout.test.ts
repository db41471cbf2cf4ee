/** Agents are upgraded under load in cohorts, and go back: no request fails. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, test } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { installAgent, installGateway } from '../support/as-version.ts';
import { startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../support/processes.ts';
import { MODEL } from '../support/test-cluster.ts';
import { twoAddresses } from '../support/two-addresses.ts';
import { NODE } from '../support/where.ts';

afterEach(endAll);

const AGENTS = 4;
const run = promisify(execFile);

test('four agents are upgraded under load and go back, and no request fails', async () => {
  const directory = await temporaryDirectory('otela-rollout');
  const agentFile = join(directory, 'agent/otela-agent.js');
  const gatewayFile = join(directory, 'gateway/dist/otela-gateway.js');
  await Promise.all([installAgent(agentFile, '0.7.0'), installGateway(gatewayFile, '0.8.0')]);
  const gateway = await Gateway.start({ main: gatewayFile });
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  for (let n = 0; n < AGENTS; n++) {
    const engine = await startEngine({ models: [MODEL] });
    atEnd(() => engine.close());
    await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, main: agentFile });
  }
  await gateway.serving(AGENTS, 60_000);
  const standIn = { tokens: 10, tokensPerSecond: 40 };
  const client = twoAddresses({ addresses: [gateway], key, perSecond: 20, standIn });
  const flows = async () => {
    const before = client.served;
    await eventually('load flows', 30_000, () => (client.served > before + 20 ? true : undefined));
  };
  await flows();
  const rollout = async (...args: string[]) => {
    const door = ['--url', gateway.url, '--key-file', join(gateway.data, 'admin.key')];
    const { stdout } = await run(NODE, [gatewayFile, 'rollout', ...args, ...door]);
    return stdout;
  };
  await expect(rollout('start', '--to', '0.8.0')).rejects.toThrow(/has version 0\.7\.0 on this machine, not 0\.8\.0/);
  for (const version of ['0.8.0', '0.7.0']) {
    await installAgent(agentFile, version);
    await rollout('start', '--to', version, '--cohort', '50%', '--within', '2m');
    expect(await rollout('status', '--to', version)).toBe(`${version}  ${AGENTS} nodes\n`);
    // Connected nodes below the minimum stay and continue to serve.
    await gateway.admin('PATCH', 'settings', { minimum_agent_version: '0.8.0' });
    const below = version === '0.7.0' ? '  below 0.8.0: will not be admitted again' : '';
    expect(await rollout('status', '--to', version)).toBe(`${version}  ${AGENTS} nodes${below}\n`);
    await gateway.admin('PATCH', 'settings', { minimum_agent_version: null });
    await flows();
  }
  await client.stop();
  expect([client.errors, client.served]).toEqual([[], client.sent]);
});
