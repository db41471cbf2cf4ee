/** Agents that are refused: each one learns it, and the others continue to serve. */
import { connect } from 'node:net';
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { endAll } from '../support/processes.ts';
import { raw } from '../support/raw.ts';
import { openTestCluster, stillServes, type TestCluster } from '../support/test-cluster.ts';

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster();
});
afterAll(endAll);
afterEach(async () => expect(await stillServes(cluster)).toBe(200));

it('an agent with a wrong token is told so and ends with 69', async () => {
  const agent = await startAgent({
    gateways: [cluster.gateway.url],
    token: 'otj-wrong',
    engineUrl: cluster.engine.url,
  });
  expect(await agent.end(15_000)).toMatchObject({ code: 69 });
  expect(agent.output).toMatch(/401|refused|token/i);
  expect(agent.output).not.toContain('otj-wrong');
  expect(await cluster.gateway.nodes()).toHaveLength(1);
});

it('a consumer’s key does not admit an agent', async () => {
  const agent = await startAgent({
    gateways: [cluster.gateway.url],
    token: cluster.key,
    engineUrl: cluster.engine.url,
  });
  expect(await agent.end(15_000)).toMatchObject({ code: 69 });
});

it('the tunnel’s door refuses plain requests and upgrades without a token', async () => {
  const plain = await raw(`${cluster.gateway.url}/agent/connect`);
  expect([400, 401, 426]).toContain(plain.status);
  const { hostname, port } = new URL(cluster.gateway.url);
  const socket = connect(Number(port), hostname);
  socket.write(
    `GET /agent/connect HTTP/1.1\r\nHost: ${hostname}:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
      'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
  );
  const first = await new Promise<string>((resolve) => socket.once('data', (bytes) => resolve(bytes.toString())));
  socket.destroy();
  expect(first).toMatch(/^HTTP\/1\.1 4\d\d /);
});
