/** Several equal gateway processes on one database. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { NO_POSTGRES } from '../../support/abilities.ts';
import { startAgent } from '../../support/agent.ts';
import { type Engine, startEngine } from '../../support/engine.ts';
import type { Gateway } from '../../support/gateway.ts';
import { GatewayProcesses } from '../../support/gateway-processes.ts';
import { endAll, eventually } from '../../support/processes.ts';

const MODEL = 'shared-model';

describe.skipIf(NO_POSTGRES !== undefined)(`gateway processes${NO_POSTGRES ? ` (${NO_POSTGRES})` : ''}`, () => {
  let processes: GatewayProcesses;
  let first: Gateway;
  let second: Gateway;
  let engine: Engine;
  let key: string;

  beforeAll(async () => {
    processes = await GatewayProcesses.start(2);
    [first, second] = processes.gateways as [Gateway, Gateway];
    engine = await startEngine({ models: [MODEL] });
    await startAgent({ gateways: [first.url], token: await second.createJoinToken(), engineUrl: engine.url });
    await first.serving(1);
    key = await second.createKey('k');
  });

  afterAll(async () => {
    await engine?.close();
    await endAll();
  });

  const ask = (gateway: Gateway, body: object) =>
    fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'hello' }], ...body }),
    });

  test('a request to either process is answered, whole or streaming, with the same bytes', async () => {
    const stand_in = { id: 'same', tokens: 20 };
    for (const stream of [false, true]) {
      const [here, there] = [await ask(first, { stream, stand_in }), await ask(second, { stream, stand_in })];
      expect([here.status, there.status]).toEqual([200, 200]);
      expect(await there.text()).toBe(await here.text());
    }
  });

  test('a key that one process revokes is refused by the other within two seconds', async () => {
    const { id, key: revoked } = (await first.admin('POST', 'keys', { name: 'r', role: 'consumer' })) as {
      id: string;
      key: string;
    };
    const status = async () =>
      (await fetch(`${second.url}/v1/models`, { headers: { authorization: `Bearer ${revoked}` } })).status;
    expect(await status()).toBe(200);
    await first.admin('DELETE', `keys/${id}`);
    await eventually('a refusal', 2_000, async () => ((await status()) === 401 ? true : undefined));
  });
});
