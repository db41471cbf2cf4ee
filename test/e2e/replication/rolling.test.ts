/**
 * Two gateways and their agents are upgraded under load, one after the other: no request fails. Then the agents are
 * downgraded.
 */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, expect, test } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { installAgent, installGateway } from '../../support/as-version.ts';
import { startEngine } from '../../support/engine.ts';
import { Gateway } from '../../support/gateway.ts';
import { atEnd, endAll, eventually, freePort, temporaryDirectory } from '../../support/processes.ts';
import { MODEL } from '../../support/test-cluster.ts';
import { twoAddresses } from '../../support/two-addresses.ts';
import { NODE } from '../../support/where.ts';
import { startFollower } from './support.ts';

afterEach(endAll);

/** Number of agents; twelve in the long form, `npm run soak -- gateways`. */
const AGENTS = Number(process.env.OTELA_ROLLING_AGENTS ?? 4);
const run = promisify(execFile);

test(`two gateways and ${AGENTS} agents are upgraded under load, agents go back, and no request fails`, async () => {
  const directory = await temporaryDirectory('otela-rolling');
  const agentFile = join(directory, 'agent/otela-agent.js');
  const gatewayFile = join(directory, 'gateway/dist/otela-gateway.js');
  await Promise.all([installAgent(agentFile, '0.7.0'), installGateway(gatewayFile, '0.7.0')]);

  const port = await freePort();
  const first = await Gateway.start({ port, main: gatewayFile, args: ['--url', `http://127.0.0.1:${port}`] });
  const follower = await startFollower(first, [], { main: gatewayFile });
  const [key, token] = await Promise.all([first.createKey(), first.createJoinToken()]);
  for (let n = 0; n < AGENTS; n++) {
    const engine = await startEngine({ models: [MODEL] });
    atEnd(() => engine.close());
    await startAgent({ gateways: [first.url, follower.url], token, engineUrl: engine.url, main: agentFile });
  }
  await first.serving(AGENTS, 60_000);
  await follower.serving(AGENTS, 60_000);
  const client = twoAddresses({
    addresses: [first, follower],
    key,
    perSecond: 20,
    standIn: { tokens: 10, tokensPerSecond: 40 },
  });
  const flows = async () => {
    const before = client.served;
    await eventually('load flows', 30_000, () => (client.served > before + 20 ? true : undefined));
  };
  await flows();

  // The new version is installed next to the running one. One gateway after the other restarts, and the other serves
  // meanwhile.
  await installGateway(gatewayFile, '0.8.0');
  for (const gateway of [follower, first]) {
    await gateway.stop();
    await gateway.restart();
    await gateway.serving(AGENTS, 60_000);
    await flows();
  }
  await eventually('the follower is connected, and of the new version', 20_000, async () =>
    /"version":"0.8.0".*"connected":true/.test(JSON.stringify(await first.admin('GET', 'gateways'))) ? true : undefined,
  );

  const rollout = async (...args: string[]) => {
    const door = ['--url', first.url, '--key-file', join(first.data, 'admin.key')];
    const { stdout } = await run(NODE, [gatewayFile, 'rollout', ...args, ...door]);
    return stdout;
  };
  await expect(rollout('start', '--to', '0.8.0')).rejects.toThrow(/has version 0\.7\.0 on this machine, not 0\.8\.0/);
  for (const version of ['0.8.0', '0.7.0']) {
    await installAgent(agentFile, version);
    await rollout('start', '--to', version, '--cohort', '50%', '--within', '2m');
    expect(await rollout('status', '--to', version)).toBe(`${version}  ${AGENTS} nodes\n`);
    // Sets a minimum version of agents. Connected nodes below it stay and continue to serve.
    await first.admin('PATCH', 'settings', { minimum_agent_version: '0.8.0' });
    const behind =
      version === '0.7.0'
        ? `0.7.0  ${AGENTS} nodes  below 0.8.0: will not be admitted again\n`
        : `0.8.0  ${AGENTS} nodes\n`;
    expect(await rollout('status', '--to', version)).toBe(behind);
    await first.admin('PATCH', 'settings', { minimum_agent_version: null });
    await flows();
  }
  await client.stop();
  expect(client.errors).toEqual([]);
  expect(client.served).toBe(client.sent);
});
