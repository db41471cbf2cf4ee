/**
 * A stream that is offloaded to the client's own socket while its tunnel object is reset. The gateway runs in this
 * process, so that the test can inject the fault.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, it, vi } from 'vitest';
import { serve } from '../../../gateway/hosts/node/serve/serve.ts';
import { TunnelObject } from '../../../gateway/tunnel/tunnel-object.ts';
import { startAgent } from '../../support/agent.ts';
import { startEngine } from '../../support/engine.ts';
import { GatewayClient } from '../../support/gateway-client.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { chatBody, MODEL } from '../../support/test-cluster.ts';

/**
 * Time limit for the error to arrive. The agent reconnects within two seconds, and the restarted object then ends the
 * streams of the previous one.
 */
const TOLD_MS = 60_000;

afterAll(endAll);

it('its client sees the transfer break off when the agent is back, and the next request is served', async () => {
  const data = await temporaryDirectory('otela-reset');
  const log: string[] = [];
  const running = await serve({ port: 0, host: '127.0.0.1', data }, (line) => log.push(line));
  atEnd(() => running.stop(0));
  const gateway = new GatewayClient(running.url, readFileSync(join(data, 'admin.key'), 'utf8').trim());
  const [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url });
  await gateway.serving(1);

  const ask = (standIn: object, stream: boolean) =>
    fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(chatBody(standIn, { stream })),
    });
  const response = await ask({ tokens: 5_000, tokensPerSecond: 50 }, true);
  expect(response.status).toBe(200);
  const reader = response.body?.getReader();
  let seen = 0;
  const end = (async () => {
    for (;;) {
      const next = await reader?.read();
      if (next === undefined || next.done) return 'a clean end';
      seen += next.value.length;
    }
  })().catch(() => 'broken off');
  await eventually('some of the stream', 10_000, () => seen > 1_000 || undefined);

  const poison = vi.spyOn(TunnelObject.prototype, 'webSocketMessage').mockImplementationOnce(() => {
    throw new Error('a fault of this test');
  });
  await eventually('the reset', 10_000, () => log.some((line) => line.includes('resetting ')) || undefined);
  poison.mockRestore();
  const late = new Promise((resolve) => setTimeout(() => resolve('it stays open'), TOLD_MS));
  expect(await Promise.race([end, late])).toBe('broken off');
  await gateway.serving(1);
  expect((await ask({ tokens: 1 }, false)).status).toBe(200);
});
