/** Nodes and requests when an issuer's keys are rotated, revoked, or lost. */
import { spawnSync } from 'node:child_process';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import { startAgent } from '../support/agent.ts';
import type { Gateway } from '../support/gateway.ts';
import { patience } from '../support/patience.ts';
import { endAll, eventually } from '../support/processes.ts';
import { chatBody, openTestCluster, type TestCluster } from '../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE } from '../support/where.ts';

const shownSchema = z.object({ gateway_key: z.string(), root_key: z.string(), root_key_name: z.string() });

afterEach(endAll);

function cli(...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(NODE, [GATEWAY_MAIN, ...args], {
    encoding: 'utf8',
    timeout: patience(30_000),
  });
  if (status !== 0) throw new Error(`${args.join(' ')}: ${stderr}`);
  return stdout;
}

const issuer = (gateway: Gateway, ...verb: string[]) =>
  shownSchema.parse(JSON.parse(cli('issuer', ...verb, '--data', gateway.data, '--json')));

async function restarted(gateway: Gateway): Promise<void> {
  await gateway.stop();
  await gateway.restart();
}

const session = async (gateway: Gateway) => (await gateway.serving(1, 20_000))[0]?.session;
const answers = async ({ ask }: TestCluster) => (await ask('/v1/chat/completions', chatBody())).status;

it('A rotation under load ends no session and no request that the restart does not', async () => {
  const cluster = await openTestCluster();
  const { gateway } = cluster;
  const [before, first] = [issuer(gateway, 'show'), await session(gateway)];
  const statuses: number[] = [];
  let loaded = true;
  const load = (async () => {
    while (loaded) statuses.push(await answers(cluster).catch(() => 0));
  })();
  expect(issuer(gateway, 'rotate').gateway_key).not.toBe(before.gateway_key);
  await restarted(gateway);
  expect(await session(gateway)).toBe(first);
  const settled = statuses.length;
  await eventually('ten answers more', 10_000, () => (statuses.length > settled + 10 ? true : undefined));
  loaded = false;
  await load;
  expect(new Set(statuses.slice(settled + 1))).toEqual(new Set([200]));
  // If all agents have sessions under the new key, revoking the old key has no visible effect. Immediately after the
  // rotation, the revocation makes them begin new sessions.
  issuer(gateway, 'revoke', before.gateway_key);
  await restarted(gateway);
  await eventually('a new session', 20_000, async () => ((await session(gateway)) !== first ? true : undefined));
  expect(await answers(cluster)).toBe(200);
});

it('A gateway key that was lost is replaced at the start, and the nodes that it admitted go on', async () => {
  const cluster = await openTestCluster();
  const { gateway } = cluster;
  const [before, first] = [issuer(gateway, 'show'), await session(gateway)];
  await gateway.stop();
  await rm(join(gateway.data, 'issuer/gateway.key'));
  await gateway.restart();
  expect(issuer(gateway, 'show').gateway_key).not.toBe(before.gateway_key);
  expect(await session(gateway)).toBe(first);
  expect(await answers(cluster)).toBe(200);
});

it('A gateway whose root key is lost serves on; under a new root, agents that start anew serve again', async () => {
  const cluster = await openTestCluster();
  const { gateway, token, engine } = cluster;
  const first = await session(gateway);
  await gateway.stop();
  await rm(join(gateway.data, 'issuer/root.key'));
  await gateway.restart();
  expect([await session(gateway), await answers(cluster)]).toEqual([first, 200]);
  await gateway.stop();
  await rm(join(gateway.data, 'issuer'), { recursive: true });
  await gateway.restart();
  await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url });
  await eventually('a new session', 20_000, async () => ((await session(gateway)) !== first ? true : undefined));
  expect(await answers(cluster)).toBe(200);
});

it('Peers are added, listed and removed from the command line', async () => {
  const cluster = await openTestCluster();
  const { gateway } = cluster;
  const door = ['--url', gateway.url, '--key-file', join(gateway.data, 'admin.key')];
  const elsewhere = join(gateway.data, 'elsewhere');
  cli('issuer', 'init', '--data', elsewhere);
  const { root_key } = shownSchema.parse(JSON.parse(cli('issuer', 'show', '--data', elsewhere, '--json')));
  expect(cli('peers', 'add', ...door, '--', 'eth', root_key, 'https://eth.example')).toContain(root_key);
  expect(cli('peers', 'list', ...door)).toMatch(/^name +root key +url +created\neth +\S+ +https:\/\/eth\.example +/);
  expect(() =>
    cli('peers', 'add', ...door, '--', 'own', issuer(gateway, 'show').root_key, 'https://x.example'),
  ).toThrow(/own issuer/);
  expect(cli('peers', 'remove', 'eth', ...door)).toBe('eth  removed\n');
  expect(cli('peers', 'remove', 'eth', ...door)).toBe('eth is not a peer institution of this gateway\n');
  expect(cli('peers', 'list', ...door)).not.toContain('eth');
});
