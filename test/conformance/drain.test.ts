/** A node is drained from the gateway: running requests finish, no new request is sent to it, and its agent exits. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import * as z from 'zod';
import { endAll, eventually } from '../support/processes.ts';
import { chatBody, openTestCluster, type TestCluster } from '../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE } from '../support/where.ts';

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster({ nodes: 2, gateway: { queue: false } });
});
afterAll(endAll);

const drain = (session: string, key: string) =>
  fetch(`${cluster.gateway.url}/admin/nodes/${session}/drain`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}` },
  });
const stateOf = async (session: string) =>
  (await cluster.gateway.nodes()).find((node) => node.session === session)?.state;

it('a request in flight completes, then the agent has left with code 0; the other node goes on', async () => {
  const key = await cluster.gateway.createKey('lab', { role: 'provider', provider: 'lab' });
  const stream = await cluster.ask(
    '/v1/chat/completions',
    chatBody({ tokens: 60, tokensPerSecond: 20 }, { stream: true }),
  );
  expect(stream.status).toBe(200);
  const session = stream.headers.get('x-otela-node') ?? '';
  const busy = cluster.engines.findIndex((engine) => engine.running() > 0);
  const drained = await drain(session, key);
  expect([drained.status, await drained.json()]).toEqual([
    202,
    { object: 'node', session, draining: true, running: 1 },
  ]);
  await eventually('DOWN', 5_000, async () => ((await stateOf(session)) === 'DOWN' ? true : undefined));
  expect(cluster.engines[busy]?.running()).toBe(1);
  for (let n = 0; n < 4; n++) {
    const other = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 1 }));
    expect([other.status, other.headers.get('x-otela-node') === session]).toEqual([200, false]);
    await other.body?.cancel();
  }
  const text = await stream.text();
  expect(text.match(/^data: \{.*"content":"[^"]+"/gm)?.length).toBeGreaterThanOrEqual(59);
  expect(text).toMatch(/data: \[DONE\]\s*$/);
  expect(await cluster.agents[busy]?.end(15_000)).toMatchObject({ code: 0 });
  expect(cluster.agents[busy]?.output).toMatch(/an order from its gateway: draining 1 running requests/);
  await eventually('LEFT', 5_000, async () => ((await stateOf(session)) === 'LEFT' ? true : undefined));
  expect(cluster.agents[1 - busy]?.running).toBe(true);
  expect((await drain(session, key)).status).toBe(404);
  const told = z
    .object({ data: z.array(z.object({ event: z.string() })) })
    .parse(await cluster.gateway.admin('GET', `nodes/history?session=${session}`));
  expect(told.data.map(({ event }) => event).toReversed()).toEqual(['join', 'serving', 'down', 'left']);
});

it('the command line drains the one that is left, and tells what became of both', async () => {
  const [node] = await cluster.gateway.serving(1);
  const door = ['--url', cluster.gateway.url, '--key-file', join(cluster.gateway.data, 'admin.key')];
  const nodes = (...args: string[]) => promisify(execFile)(NODE, [GATEWAY_MAIN, 'nodes', ...args, ...door]);
  const session = node?.session ?? '';
  expect((await nodes('drain', session)).stdout).toBe(`${session} is draining 0 running requests\n`);
  await eventually('LEFT', 10_000, async () => ((await stateOf(session)) === 'LEFT' ? true : undefined));
  const { stdout } = await nodes('history', '--session', session);
  // A node without running requests may have left before any replica learned that it drains.
  const told = stdout.split('\n').flatMap((line) => line.split(/\s+/).slice(1, 2));
  expect(told.filter((event) => event !== 'down')).toEqual(['event', 'left', 'serving', 'join']);
  await expect(nodes('drain', session)).rejects.toMatchObject({ stderr: expect.stringContaining('has already left') });
});
