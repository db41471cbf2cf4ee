/** Two institutions, each with its own issuer and gateway: nodes that one admits serve the keys of the other. */
import { spawnSync } from 'node:child_process';
import { copyFile, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import * as z from 'zod';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { Gateway, type RegisteredNode } from '../support/gateway.ts';
import { lyingGateway } from '../support/lying-gateway.ts';
import { patience } from '../support/patience.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../support/processes.ts';
import { chatBody, envelopeOf, MODEL } from '../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE } from '../support/where.ts';

afterEach(endAll);

const readySchema = z.object({ issuer: z.object({ keys: z.string(), id: z.string() }) });
const admittedSchema = z.object({ issuers: z.array(z.object({ name: z.string(), root: z.string() })) });

/** The root's public key, as a gateway sends it to an agent. */
async function rootOf(gateway: Gateway): Promise<string> {
  const token = await gateway.createJoinToken('probe', 'probe');
  const response = await fetch(`${gateway.url}/agent/admit`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}` },
    body: JSON.stringify({ protocol: 2, public_key: Buffer.alloc(32, 7).toString('base64url') }),
  });
  const { issuers } = admittedSchema.parse(await response.json());
  return issuers.find(({ name }) => name === 'local')?.root ?? '';
}

/** The agent's options name only A; it learns of B from A, which lists B as a peer. */
async function twoInstitutions() {
  const [a, b] = await Promise.all([Gateway.start(), Gateway.start()]);
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  await b.admin('POST', 'peers', { name: 'a', root: await rootOf(a), url: a.url });
  await a.admin('POST', 'peers', { name: 'b', root: await rootOf(b), url: b.url });
  const token = await a.createJoinToken('lab', 'alps');
  const agent = await startAgent({ gateways: [a.url], token, engineUrl: engine.url });
  await Promise.all([a.serving(1), b.serving(1)]);
  return { a, b, agent, engine };
}

function ask(gateway: Gateway, key: string): Promise<Response> {
  return fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify(chatBody()),
  });
}

const only = ([node]: RegisteredNode[]) => node;

it('a node that A admitted serves a key of B that trusts lab@a, also while A is off, and nobody who does not', async () => {
  const { a, b } = await twoInstitutions();
  expect(only(await a.nodes())).toMatchObject({ provider: 'lab', cluster: 'alps' });
  expect(only(await b.nodes())).toMatchObject({ provider: 'lab@a', cluster: 'alps', suspected: false });
  const trusting = await b.createKey('trusting', { trusted_providers: ['lab@a'] });
  const own = await b.createKey('own');
  expect((await ask(b, trusting)).status).toBe(200);
  expect((await ask(b, trusting)).headers.get('x-otela-provider')).toBe('lab@a');
  // A key without a list trusts only nodes that its own institution admitted.
  const refused = await ask(b, own);
  expect([403, 503]).toContain(refused.status);
  await a.stop();
  for (let n = 0; n < 5; n++) expect((await ask(b, trusting)).status).toBe(200);
  expect(await envelopeOf(await ask(b, own))).toBeDefined();
});

it('A sees by institution and project what the users of B used at its nodes, and B sees it under A’s provider', async () => {
  const { a, b } = await twoInstitutions();
  const project = await b.createProject('Physics');
  const key = await b.createKey('trusting', { trusted_providers: ['lab@a'], project_id: project });
  for (let n = 0; n < 3; n++) expect((await ask(b, key)).status).toBe(200);
  const totals = async (gateway: Gateway, group: string) => {
    const answer = await gateway.admin('GET', `usage?group_by=${group}`);
    return z
      .object({ data: z.array(z.looseObject({ requests: z.number(), completion_tokens: z.number() })) })
      .parse(answer).data;
  };
  const seen = async (gateway: Gateway, group: string, by: object) =>
    eventually(`the usage of ${group}`, 30_000, async () => {
      const rows = await totals(gateway, group);
      const row = rows.find((one) => Object.entries(by).every(([name, value]) => one[name] === value));
      return row?.requests === 3 ? row : undefined;
    });
  const served = await seen(a, 'peer,project', { peer: 'b', project: `${project}@b` });
  const used = await seen(b, 'provider,project', { provider: 'lab@a', project });
  expect(served.completion_tokens).toBe(used.completion_tokens);
  expect(served.completion_tokens).toBeGreaterThan(0);
  expect((await totals(b, 'peer')).map(({ peer }) => peer)).toEqual(['']);
});

const cli = (...args: string[]) =>
  spawnSync(NODE, [GATEWAY_MAIN, ...args], { encoding: 'utf8', timeout: patience(30_000) });

it('both institutions state the same requests, and a statement that was changed is refused', async () => {
  const { a, b } = await twoInstitutions();
  const key = await b.createKey('trusting', { trusted_providers: ['lab@a'] });
  for (let n = 0; n < 3; n++) expect((await ask(b, key)).status).toBe(200);
  const directory = await temporaryDirectory();
  const stated = async (gateway: Gateway, peer: string, side: string) => {
    const text = await eventually(`the statement of ${side}`, 30_000, async () => {
      const response = await fetch(`${gateway.url}/admin/peers/${peer}/statement?side=${side}`, {
        headers: { authorization: `Bearer ${gateway.adminKey}` },
      });
      const lines = await response.text();
      return lines.split('\n').length === 5 ? lines : undefined;
    });
    const file = join(directory, `${side}.ndjson`);
    await writeFile(file, text);
    return { file, lines: text.split('\n') };
  };
  const served = await stated(a, 'b', 'served');
  const used = await stated(b, 'a', 'used');
  expect(cli('statement', 'compare', served.file, used.file)).toMatchObject({
    status: 0,
    stdout: expect.stringContaining('3 requests agree, 0 are disputed'),
  });
  const { request } = z.object({ request: z.string() }).parse(JSON.parse(served.lines[1] ?? ''));
  const proof = cli('usage', 'prove', served.file, request).stdout;
  const proofFile = join(directory, 'proof.json');
  await writeFile(proofFile, proof);
  expect(cli('usage', 'prove', '--check', proofFile)).toMatchObject({
    status: 0,
    stdout: expect.stringContaining(request),
  });
  await writeFile(proofFile, proof.replace(/\\"completion\\":\d+/, '\\"completion\\":999'));
  expect(cli('usage', 'prove', '--check', proofFile)).toMatchObject({
    status: 1,
    stderr: expect.stringContaining('root'),
  });
  await writeFile(used.file, used.lines.slice(1).join('\n'));
  expect(cli('statement', 'compare', served.file, used.file).stderr).toContain('not a valid statement');
  const missing = await fetch(`${a.url}/admin/peers/nobody/statement`, {
    headers: { authorization: `Bearer ${a.adminKey}` },
  });
  expect(missing.status).toBe(404);
});

it('a peer’s gateway that lies is never sent the join token, and ends no session', async () => {
  const [a, other] = await Promise.all([Gateway.start(), Gateway.start()]);
  const peer = await lyingGateway();
  await a.admin('POST', 'peers', { name: 'b', root: await rootOf(other), url: peer.url });
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const agent = await startAgent({
    gateways: [a.url],
    token: await a.createJoinToken('lab', 'alps'),
    engineUrl: engine.url,
  });
  const before = only(await a.serving(1))?.session;
  await agent.line(/the session has ended/, 15_000);
  await a.stop();
  await agent.line(/connection lost, reconnecting/, 15_000);
  await a.restart();
  expect(only(await a.serving(1, 60_000))?.session).toBe(before);
  // Its own institution ends the session, so the agent asks there for the next one.
  await a.admin('DELETE', `nodes/${before}`);
  await eventually('a new session', 30_000, async () =>
    (await a.nodes()).some(({ session, state }) => session !== before && state === 'SERVING') ? true : undefined,
  );
  expect(peer.asked.length).toBeGreaterThan(0);
  expect(peer.secretsSeen).toEqual([]);
});

it('without the peer its nodes are gone from B within seconds, and nobody else is', async () => {
  const { a, b } = await twoInstitutions();
  const engine = await startEngine({ models: ['own'] });
  atEnd(() => engine.close());
  await startAgent({ gateways: [b.url], token: await b.createJoinToken('here', 'euler'), engineUrl: engine.url });
  await b.serving(2);
  const key = await b.createKey('trusting', { trusted_providers: ['lab@a', 'here'] });
  expect((await ask(b, key)).status).toBe(200);
  await b.admin('DELETE', 'peers/a');
  await eventually('only its own node', 5_000, async () => {
    const nodes = await b.nodes();
    return nodes.length === 1 && nodes[0]?.provider === 'here' ? true : undefined;
  });
  expect((await ask(b, key)).status).not.toBe(200);
  // Nothing happened at A.
  const keyOfA = await a.createKey();
  expect((await ask(a, keyOfA)).status).toBe(200);
  expect(only(await a.nodes())).toMatchObject({ provider: 'lab', suspected: false });
  // Once listed again the node returns, because its agent has not given up.
  await b.admin('POST', 'peers', { name: 'a', root: await rootOf(a) });
  await b.serving(2, 60_000);
});

it('a gateway that lists the institution only later is asked again, and serves its nodes then', async () => {
  const [a, b] = await Promise.all([Gateway.start(), Gateway.start()]);
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const token = await a.createJoinToken('lab', 'alps');
  const agent = await startAgent({ gateways: [a.url, b.url], token, engineUrl: engine.url });
  await agent.line(/refuses this agent: 403/, 15_000);
  await a.serving(1);
  await b.admin('POST', 'peers', { name: 'a', root: await rootOf(a), url: a.url });
  await b.serving(1, 60_000);
  const key = await b.createKey('trusting', { trusted_providers: ['lab@a'] });
  expect((await ask(b, key)).status).toBe(200);
});

it('two gateways of one institution route to the same nodes, with the token of either, and believe each other', async () => {
  const [a, b] = await Promise.all([Gateway.start(), Gateway.start()]);
  // The root key is the institution's; each gateway has its own key, which the root certifies.
  await b.stop();
  await rm(join(b.data, 'issuer'), { recursive: true });
  await mkdir(join(b.data, 'issuer'), { mode: 0o700 });
  await copyFile(join(a.data, 'issuer/root.key'), join(b.data, 'issuer/root.key'));
  await b.restart();
  const engine = await startEngine({ models: [MODEL] });
  atEnd(() => engine.close());
  const gateways = [a.url, b.url];
  await startAgent({ gateways, token: await a.createJoinToken('lab', 'alps'), engineUrl: engine.url });
  await startAgent({ gateways, token: await b.createJoinToken('lab', 'alps'), engineUrl: engine.url });
  const sessions = async (gateway: Gateway) => (await gateway.serving(2, 30_000)).map(({ session }) => session).sort();
  const before = await sessions(a);
  expect(await sessions(b)).toEqual(before);
  for (const node of [...(await a.nodes()), ...(await b.nodes())]) expect(node.provider).toBe('lab');
  // The gateway that admitted a session may end it. The other gateway learns it by gossip and follows. The agent
  // returns with a new session.
  const ended: string[] = [];
  for (const gateway of [a, b]) {
    for (const session of before) {
      const done = await gateway.admin('DELETE', `nodes/${session}`).then(
        () => true,
        () => false,
      );
      if (done) ended.push(session);
    }
  }
  expect(ended.sort()).toEqual(before);
  for (const gateway of [a, b]) {
    await eventually('two new sessions', 30_000, async () => {
      const nodes = await gateway.nodes();
      const left = nodes.filter(({ session, state }) => before.includes(session) && state === 'LEFT');
      const serving = nodes.filter(({ state, suspected }) => state === 'SERVING' && !suspected);
      return left.length === 2 && serving.length === 2 ? true : undefined;
    });
  }
});

it('/readyz says whose keys the gateway signs with: those of its data directory', async () => {
  const gateway = await Gateway.start();
  const { issuer } = readySchema.parse(await (await fetch(`${gateway.url}/readyz`)).json());
  expect(issuer).toMatchObject({ keys: 'environment', id: expect.stringMatching(/^[a-z2-7]{26}$/) });
  expect((await readFile(join(gateway.data, 'issuer/root.key'))).length).toBeGreaterThan(30);
});
