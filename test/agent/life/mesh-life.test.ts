/**
 * Agents with real meshes between them and fake gateways: sessions begin and end, and the agents keep their channels.
 */
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { nodeCrypto } from '../../../agent/host/node-crypto.ts';
import { createSessionKey } from '../../../agent/mesh/channel/session-key.ts';
import type { AdmissionOptions } from '../../../agent/tunnel/gateway-admission.ts';
import { RegistryReplica } from '../../../shared/lattice/registry-replica.ts';
import { startEngine } from '../../support/engine.ts';
import { Member } from '../../support/mesh/member.ts';
import { patience, promise } from '../../support/patience.ts';
import { eventually, freePort } from '../../support/processes.ts';
import { eviction, fakeAdmission, LAB, labTicket } from '../support/fake-admission.ts';
import { type Run, runToEnd, scratch, startAgent, userEnv } from '../support/harness.ts';

const MODEL = 'org/model';

interface Agent {
  run: Run;
  address: string;
  status(): Promise<{
    session: string;
    network: { session: string; state: string }[];
    ingress?: { url: string; key_file: string };
  }>;
}

/** Starts an agent and waits until it is in the mesh. */
async function agent(
  args: string[],
  admit?: (asked: AdmissionOptions) => ReturnType<typeof fakeAdmission>,
): Promise<Agent> {
  const directory = scratch();
  const run = startAgent(
    directory,
    ['--mesh', '127.0.0.1', ...args],
    {},
    { joinMesh: true, ...(admit ? { admit } : {}) },
  );
  await run.until(() => (run.tunnels.at(-1)?.latest?.addresses.length ?? 0) > 0);
  const status = async () => JSON.parse((await runToEnd(['status', '--json'], userEnv(directory))).out)[0];
  return { run, address: run.tunnels.at(-1)?.latest?.addresses[0] ?? '', status };
}

async function engineArgs(): Promise<string[]> {
  const engine = await startEngine({ models: [MODEL] });
  onTestFinished(() => engine.close());
  return ['--engine-url', engine.url];
}

const sees = (one: Agent, session: string, state: string) =>
  eventually(`${session} is ${state}`, 15_000, async () => {
    const { network } = await one.status();
    const row = network.find((known) => known.session === session);
    return (row?.state ?? 'LEFT') === state ? true : undefined;
  });

const current = ({ run }: Agent) => run.tunnels.at(-1)?.options.identity.session ?? '';

async function ask(one: Agent, max_tokens = 3): Promise<Response> {
  const { ingress } = await one.status();
  if (ingress === undefined) throw new Error('no ingress');
  const headers = { authorization: `Bearer ${readFileSync(ingress.key_file, 'utf8').trim()}` };
  const body = JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'Say something.' }], max_tokens });
  return fetch(`${ingress.url}/chat/completions`, { method: 'POST', headers, body });
}

describe('agents that met', () => {
  it('answer each other while the session of one is followed by another: no request fails', async () => {
    let admitted = 0;
    const shortS = Math.ceil(promise(6_000) / 1000);
    const asking = await agent(['--ingress', ':0']);
    const admit = (asked: AdmissionOptions) => fakeAdmission(asked, admitted++ === 0 ? shortS : 3600);
    const serving = await agent(['--peer', asking.address, ...(await engineArgs())], admit);
    const first = serving.run.tunnel.options.identity.session;
    await sees(asking, first, 'SERVING');
    const statuses: number[] = [];
    const nodes = new Set<string>();
    const until = Date.now() + patience(60_000);
    while (statuses.length < 20 || nodes.size < 2) {
      const response = await ask(asking);
      await response.text();
      statuses.push(response.status);
      nodes.add(response.headers.get('x-otela-node') ?? '');
      if (Date.now() > until) break;
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
    expect(statuses.filter((status) => status !== 200)).toEqual([]);
    expect([...nodes]).toEqual([first, current(serving)]);
    await sees(asking, first, 'LEFT');
    expect(serving.run.tunnels[0]?.states).toEqual(['JOIN', 'SERVING', 'DOWN', 'LEFT']);
  });

  it('let what they asked of each other end where no gateway has one of them any more', async () => {
    const engine = await startEngine({ models: [MODEL] });
    onTestFinished(() => engine.close());
    engine.control({ tokens: 20, tokensPerSecond: 10 });
    const serving = await agent(['--engine-url', engine.url]);
    const asking = await agent(['--peer', serving.address, '--ingress', ':0']);
    await sees(asking, current(serving), 'SERVING');
    const answer = ask(asking, 20);
    await eventually('the engine has it', 5_000, () => engine.running() === 1 || undefined);
    serving.run.tunnel.options.onRefused({ status: 403, message: 'this institution is not listed any more' });
    const response = await answer;
    expect([response.status, await response.json()]).toMatchObject([200, { usage: { completion_tokens: 20 } }]);
    expect(engine.requests).toHaveLength(1);
    expect(await serving.run.exit).toBe(69);
  });

  it('hear of a departure before the agent has ended', async () => {
    const staying = await agent([]);
    const leaving = await agent(['--peer', staying.address]);
    const session = current(leaving);
    await sees(staying, session, 'JOIN');
    leaving.run.signal('SIGTERM');
    expect(await leaving.run.exit).toBe(143);
    await sees(staying, session, 'LEFT');
  });
});

it('an agent that hears from another that its session was ended comes back as a new one', async () => {
  const one = await agent(await engineArgs());
  await one.run.state('SERVING');
  const seed = randomBytes(32);
  const other = new Member({
    issuer: LAB,
    seed,
    ticket: labTicket(createSessionKey(seed).publicKey).bytes,
    listen: { host: '127.0.0.1', port: 0 },
    peers: [one.address],
    replica: new RegistryReplica({ crypto: nodeCrypto, accepts: (issuer) => issuer === LAB }),
  });
  onTestFinished(() => other.close());
  await other.open();
  const before = current(one);
  await eventually('they have met', 10_000, () => other.mesh.replica.get(before) !== undefined || undefined);
  other.mesh.publish(eviction(before));
  await one.run.until(() => one.run.tunnels[1]?.latest?.state === 'SERVING');
  expect(current(one)).not.toBe(before);
  await eventually(
    'the other knows',
    10_000,
    () => other.mesh.replica.get(current(one))?.state === 'SERVING' || undefined,
  );
});

it('a session that follows takes another port where the configured one is still held', async () => {
  const port = await freePort();
  let admitted = 0;
  const admit = (asked: AdmissionOptions) => fakeAdmission(asked, admitted++ === 0 ? 2 : 3600);
  const run = startAgent(scratch(), ['--mesh', `127.0.0.1:${port}`], {}, { joinMesh: true, admit });
  await run.until(() => run.tunnels[0]?.latest?.addresses[0] === `127.0.0.1:${port}`);
  run.tunnel.inFlight = 1; // it drains as long as this is set
  await run.until(() => (run.tunnels[1]?.latest?.addresses.length ?? 0) > 0);
  expect(run.tunnels[1]?.latest?.addresses).not.toEqual([`127.0.0.1:${port}`]);
  expect(run.stderr.text).toContain('the mesh uses a free port');
  run.tunnel.inFlight = 0;
});
