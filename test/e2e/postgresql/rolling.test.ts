/**
 * Three processes behind HAProxy with the configuration of deploy/gateway are upgraded one after the other under load:
 * no request fails, and none is repeated by its client. Skipped if HAProxy is not installed.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { NO_POSTGRES, which } from '../../support/abilities.ts';
import { startAgent } from '../../support/agent.ts';
import { startEngine } from '../../support/engine.ts';
import { GatewayProcesses } from '../../support/gateway-processes.ts';
import { atEnd, endAll, eventually, freePort, Managed, temporaryDirectory } from '../../support/processes.ts';
import { MODEL } from '../../support/test-cluster.ts';
import { twoAddresses } from '../../support/two-addresses.ts';
import { ROOT } from '../../support/where.ts';

const PATH = `${process.env.PATH}:/usr/sbin:/sbin`;
const NO_HAPROXY = which('haproxy') === undefined ? 'not installed: haproxy' : undefined;
const missing = NO_POSTGRES ?? NO_HAPROXY;

describe.skipIf(missing !== undefined)(`a rolling upgrade${missing ? ` (${missing})` : ''}`, () => {
  afterAll(endAll);

  test('fails no request of clients behind the load balancer', async () => {
    const processes = await GatewayProcesses.start(3);
    const { gateways } = processes;
    const [first] = gateways;
    if (first === undefined) throw new Error('there is no process');
    const engine = await startEngine({ models: [MODEL] });
    atEnd(() => engine.close());
    const token = await first.createJoinToken();
    await startAgent({ gateways: gateways.map(({ url }) => url), token, engineUrl: engine.url });
    for (const gateway of gateways) await gateway.serving(1, 60_000);
    const key = await first.createKey();

    const port = await freePort();
    const configuration = join(await temporaryDirectory(), 'haproxy.cfg');
    writeFileSync(
      configuration,
      readFileSync(join(ROOT, 'deploy/gateway/haproxy.cfg'), 'utf8')
        .replace('bind :8787', `bind 127.0.0.1:${port}`)
        // HAProxy ends at its start if it may not open two files per connection.
        .replace(/maxconn \d+/, 'maxconn 500')
        .replaceAll(/gateway(\d):8787/g, (_, n: string) => `127.0.0.1:${gateways[Number(n) - 1]?.port}`),
    );
    const balancer = new Managed(['haproxy', '-db', '-f', configuration], { env: { PATH }, label: 'haproxy' });
    const url = `http://127.0.0.1:${port}`;
    await eventually('the balancer', 20_000, async () => {
      if (!balancer.running) return false;
      return (await fetch(`${url}/readyz`)).ok ? true : undefined;
    });
    if (!balancer.running) throw balancer.failure('ended');
    const standIn = { tokens: 10, tokensPerSecond: 20 };
    const client = twoAddresses({ addresses: [{ url }], key, perSecond: 20, standIn });
    const flows = async () => {
      const before = client.served;
      await eventually('load flows', 30_000, () => (client.served > before + 40 ? true : undefined));
    };
    await flows();
    for (const gateway of gateways) {
      await gateway.stop();
      await gateway.restart();
      await gateway.serving(1, 60_000);
      await flows();
    }
    await client.stop();
    expect([client.errors, client.retried]).toEqual([[], 0]);
    expect(client.served).toBe(client.sent);
    expect(balancer.running).toBe(true);
  });
});
