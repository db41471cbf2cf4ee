/** A backup of PostgreSQL, made while several gateway processes run, is restored. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { NO_POSTGRES } from '../../support/abilities.ts';
import { startAgent } from '../../support/agent.ts';
import { startEngine } from '../../support/engine.ts';
import type { Gateway } from '../../support/gateway.ts';
import { GatewayProcesses } from '../../support/gateway-processes.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { chatBody, MODEL } from '../../support/test-cluster.ts';

const READY_MS = 60_000;
const PER_MINUTE = 5;

describe.skipIf(NO_POSTGRES !== undefined)(`a restored database${NO_POSTGRES ? ` (${NO_POSTGRES})` : ''}`, () => {
  afterAll(endAll);

  test('has the keys, limits, usage and nodes of the backup, and agents that joined later come back', async () => {
    const processes = await GatewayProcesses.start(2);
    const [first, second] = processes.gateways as [Gateway, Gateway];
    const engine = await startEngine({ models: [MODEL] });
    atEnd(() => engine.close());
    const token = await first.createJoinToken();
    const gateways = [first.url, second.url];
    await startAgent({ gateways, token, engineUrl: engine.url });
    for (const gateway of [first, second]) await gateway.serving(1, READY_MS);
    const key = await first.createKey('before', { limits: { requests_per_minute: PER_MINUTE } });
    const ask = async (gateway: Gateway, asking: string) => {
      const response = await fetch(`${gateway.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { authorization: `Bearer ${asking}`, 'content-type': 'application/json' },
        body: JSON.stringify(chatBody({ tokens: 1 })),
      });
      await response.arrayBuffer();
      return response.status;
    };
    const records = async () =>
      Number((await processes.rows("SELECT count(*) FROM usage_records WHERE session <> ''"))[0]?.[0]);
    const recorded = (wanted: number) =>
      eventually(`${wanted} records`, READY_MS, async () => ((await records()) >= wanted ? true : undefined));
    for (const gateway of [first, second]) expect(await ask(gateway, key)).toBe(200);
    await recorded(2);

    const file = join(await temporaryDirectory(), 'otela.dump');
    processes.server.dump('shared', file);
    const lost = await first.createKey('after the backup');
    await startAgent({ gateways, token, engineUrl: engine.url });
    for (const gateway of [first, second]) await gateway.serving(2, READY_MS);
    for (const gateway of [first, second]) expect(await ask(gateway, lost)).toBe(200);
    await recorded(4);

    for (const gateway of [first, second]) await gateway.kill9();
    processes.server.restore('shared', file);
    // The machine of the second process is lost, too.
    await rm(second.data, { recursive: true });
    for (const gateway of [first, second]) await gateway.restart();
    for (const gateway of [first, second]) await gateway.serving(2, READY_MS);
    expect(await records()).toBe(2);
    expect([await ask(first, lost), await ask(second, lost)]).toEqual([401, 401]);
    const statuses: number[] = [];
    for (let n = 0; n < PER_MINUTE + 1; n++) statuses.push(await ask(n % 2 === 0 ? first : second, key));
    expect(statuses.at(-1)).toBe(429);
    await recorded(2 + statuses.filter((status) => status === 200).length);
  });
});
