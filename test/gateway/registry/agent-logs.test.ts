/** The last output of an engine, left by its agent and readable by the users concerned. */
import { env, exports } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { workerdCrypto, workerdSigner } from '../../../gateway/issuer/ed25519.ts';
import { versionMismatch } from '../../../gateway/registry/verify-agent-ticket.ts';
import { LogTails } from '../../../gateway/registry/views/engine-log-tails.ts';
import { NodeEventLog } from '../../../gateway/registry/views/node-event-log.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import type { Signer } from '../../../shared/lattice/crypto-interface.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { logTailMessage } from '../../../shared/lattice/session-id.ts';
import { runInDurableObject } from '../support/durable.ts';
import { seedToken, TestAgent } from './agent.ts';

const registry = () => env.REGISTRY.getByName('registry');
const bytes = (text: string) => new TextEncoder().encode(text);

function leave(
  agent: TestAgent,
  tail: Uint8Array,
  more: { signer?: Signer; signed?: Uint8Array; headers?: HeadersInit } = {},
) {
  const { signer = agent.signer, signed = tail, headers = {} } = more;
  const signature = signer.sign(logTailMessage(agent.session, workerdCrypto.sha256(signed)));
  return exports.default.fetch(
    new Request('https://gateway.test/agent/logs', {
      method: 'POST',
      body: tail,
      headers: {
        'x-otela-protocol': '2',
        'x-otela-ticket': toBase64url(agent.ticket.bytes),
        'x-otela-signature': toBase64url(signature),
        ...headers,
      },
    }),
  );
}

async function newAgent(provider = 'eth'): Promise<TestAgent> {
  const { token } = await seedToken({ provider });
  const agent = await TestAgent.join(token);
  await agent.publish();
  return agent;
}

test('a tail is kept with its provider, byte for byte where it is text', async () => {
  const agent = await newAgent('eth');
  expect((await leave(agent, bytes('Traceback…\nCUDA error: misaligned address\n'))).status).toBe(204);
  expect(await registry().log(agent.session)).toMatchObject({
    provider: 'eth',
    text: 'Traceback…\nCUDA error: misaligned address\n',
  });
});

test('bytes that are no text and the largest tail are kept as well', async () => {
  const [one, two] = [await newAgent(), await newAgent()];
  expect((await leave(one, Uint8Array.of(65, 255, 66))).status).toBe(204);
  expect((await registry().log(one.session))?.text).toBe('A\ufffdB');
  expect((await leave(two, new Uint8Array(256 * 1024).fill(255))).status).toBe(204);
});

test('no session can send the log of another session', async () => {
  const agent = await newAgent();
  const forged = await leave(agent, bytes('all is well'), { signer: workerdSigner() });
  expect(forged.status).toBe(403);
  const changed = await leave(agent, bytes('all is well'), { signed: bytes('it broke') });
  expect(changed.status).toBe(403);
  const none = await leave(agent, bytes('x'), { headers: { 'x-otela-signature': '' } });
  expect(none.status).toBe(403);
  expect(await registry().log(agent.session)).toBeNull();
});

test.each([
  ['of another protocol', { 'x-otela-protocol': '1' }, 426],
  ['without a ticket', { 'x-otela-ticket': '' }, 400],
  ['with half a ticket', { 'x-otela-ticket': 'AAAA' }, 400],
])('a tail %s is refused', async (_what, headers, status) => {
  expect((await leave(await newAgent(), bytes('x'), { headers })).status).toBe(status);
});

test.each([
  [null, 'agent'],
  ['x', 'agent'],
  ['1', 'agent'],
  ['3', 'gateway'],
])('if the agent states protocol version %s, the message says to upgrade the %s', async (stated, program) => {
  expect(await versionMismatch(stated)?.text()).toContain(`upgrade the ${program}.`);
});

test('what is longer than 256 KiB is refused, and a second one at once', async () => {
  const agent = await newAgent();
  expect((await leave(agent, new Uint8Array(256 * 1024 + 1))).status).toBe(413);
  expect((await leave(agent, bytes('first'))).status).toBe(204);
  expect((await leave(agent, bytes('second'))).status).toBe(429);
  expect((await registry().log(agent.session))?.text).toBe('first');
});

test('a session that has left leaves no more words', async () => {
  const agent = await newAgent();
  await agent.publish(agent.words('LEFT'));
  // Isolates learn of it within a moment.
  await expect.poll(async () => (await leave(agent, bytes('x'))).status).toBe(410);
});

test('normal ends push out no tails of failures, and a provider with many tails pushes out its own', async () => {
  await runInDurableObject(env.REGISTRY.getByName('tails-of-its-own'), (_, { storage }) => {
    const history = new NodeEventLog(storage);
    const tails = new LogTails(storage, 4);
    const day = 24 * 60 * 60_000;
    let at = day;
    const end = (session: string, provider: string, leaving: string) => {
      tails.put({ session, provider, at: ++at, text: session });
      const entry = { session, provider, cluster: 'c', suspected: false } as RegistryEntry;
      history.changed({ ...entry, state: 'DOWN' }, { ...entry, state: 'LEFT', leaving }, undefined, at);
    };
    const kept = (...sessions: string[]) => sessions.filter((session) => tails.get(session, at) !== undefined);
    end('broke', 'eth', 'engine-ended');
    for (let n = 0; n < 10; n++) end(`drained${n}`, 'eth', 'drain');
    expect(kept('broke', 'drained6', 'drained7', 'drained8', 'drained9')).toEqual([
      'broke',
      'drained7',
      'drained8',
      'drained9',
    ]);
    for (let n = 0; n < 10; n++) end(`noisy${n}`, 'noisy', 'engine-broken');
    expect(kept('broke', 'drained9', 'noisy6', 'noisy7', 'noisy8', 'noisy9')).toEqual([
      'broke',
      'noisy7',
      'noisy8',
      'noisy9',
    ]);
  });
});
