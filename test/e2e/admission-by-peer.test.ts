/** Nodes that reach no gateway themselves: a peer forwards their admission, a relay forwards everything. */
import { spawnSync } from 'node:child_process';
import { lookup } from 'node:dns/promises';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { afterEach, beforeEach, expect, it } from 'vitest';
import * as z from 'zod';
import { networkRowSchema, statusSchema } from '../../agent/host/control-protocol.ts';
import { startAgent } from '../support/agent.ts';
import { OPENSSL, selfSigned, trust } from '../support/certificate.ts';
import { startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../support/processes.ts';
import { MODEL } from '../support/test-cluster.ts';
import { AGENT_MAIN, NODE } from '../support/where.ts';

/** Proxies are never used for loopback addresses, so the gateway is addressed by this machine's name. */
const NAME = hostname();
const here = await lookup(NAME).then(
  ({ address }) => address.startsWith('127.'),
  () => false,
);
const able = OPENSSL && here;
const UNABLE = 'needs openssl, and a host name that is 127.0.0.1';

/** A proxy that does not exist, so that the node cannot connect to a gateway. */
const NO_WAY_OUT = { https_proxy: 'http://127.0.0.1:1' };

let gateway: Gateway;
let token: string;
let authority: string;

beforeEach(async () => {
  if (!able) return;
  const { cert, key } = selfSigned(await temporaryDirectory(), 'gateway', [`DNS:${NAME}`]);
  authority = cert;
  trust(readFileSync(cert, 'utf8')); // the test itself calls the gateway too
  gateway = await Gateway.start({ publicHost: NAME, args: ['--tls-cert', cert, '--tls-key', key] });
  token = await gateway.createJoinToken();
});
afterEach(endAll);

const statusesSchema = z.array(statusSchema.extend({ network: z.array(networkRowSchema) }));

async function agent(args: string[], env: Record<string, string> = {}, joinToken = token) {
  const state = await temporaryDirectory('otela-peer');
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const own = { XDG_RUNTIME_DIR: state };
  const process = await startAgent({
    gateways: [gateway.url],
    token: joinToken,
    engineUrl: engine.url,
    args: ['--mesh', '127.0.0.1', ...args],
    env: { ...own, NODE_EXTRA_CA_CERTS: authority, ...env },
  });
  const status = () => {
    const { stdout } = spawnSync(NODE, [AGENT_MAIN, 'status', '--json'], { env: own, encoding: 'utf8' });
    return statusesSchema.parse(JSON.parse(stdout))[0];
  };
  return { process, status };
}

const address = (of: Awaited<ReturnType<typeof agent>>) =>
  eventually('it is in the mesh', 20_000, () => of.status()?.mesh?.addresses[0]);

it('a node without a way to the gateway is admitted through a peer, and is one of the mesh', async ({ skip }) => {
  skip(!able, UNABLE);
  const first = await agent([]);
  const second = await agent(['--peer', await address(first)], NO_WAY_OUT);
  await eventually('the second is admitted', 30_000, () => second.status()?.admitted || undefined);
  const { session } = second.status() ?? {};
  await eventually(
    'the first knows that it serves',
    20_000,
    () => first.status()?.network.some((row) => row.session === session && row.state === 'SERVING') || undefined,
  );
  expect(second.status()?.gateways).toMatchObject([{ connected: false }]);
});

it('a peer passes nothing on for somebody with another join token', async ({ skip }) => {
  skip(!able, UNABLE);
  const first = await agent([]);
  const stranger = await agent(['--peer', await address(first)], NO_WAY_OUT, await gateway.createJoinToken('other'));
  await stranger.process.line(/not admitted yet/, 30_000);
  expect(stranger.status()?.admitted).toBe(false);
});

it('a relay passes everything on: the node behind it serves', async ({ skip }) => {
  skip(!able, UNABLE);
  const first = await agent(['--offer-relay']);
  await agent(['--relay', await address(first)], NO_WAY_OUT);
  await gateway.serving(2, 30_000);
});
