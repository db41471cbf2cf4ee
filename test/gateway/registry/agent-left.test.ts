/** What an agent leaves behind for the case that it is killed: only the record that its session has LEFT. */
import { env, exports } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { workerdCrypto, workerdSigner } from '../../../gateway/issuer/ed25519.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import type { SessionState } from '../../../shared/lattice/node-record.ts';
import { signRecord } from '../../../shared/lattice/signed-record.ts';
import { seedToken, TestAgent } from './agent.ts';

async function newAgent(): Promise<TestAgent> {
  const { token } = await seedToken();
  const agent = await TestAgent.join(token);
  await agent.publish();
  return agent;
}

function recordOf(
  { session, signer }: Pick<TestAgent, 'session' | 'signer'>,
  state: SessionState = 'LEFT',
): Uint8Array {
  return signRecord({ session, state, version: 0, payload: new Uint8Array() }, signer, workerdCrypto);
}

function tell({ ticket }: Pick<TestAgent, 'ticket'>, body: Uint8Array): Promise<Response> {
  const headers = { 'x-otela-protocol': '2', 'x-otela-ticket': toBase64url(ticket.bytes) };
  return exports.default.fetch(new Request('https://gateway.test/agent/left', { method: 'POST', body, headers }));
}

async function stateOf({ session }: TestAgent): Promise<string | undefined> {
  const { nodes } = await env.REGISTRY.getByName('registry').look({ session, limit: 1 });
  return nodes[0]?.entry.state;
}

test('a session has left by its own record, said twice as well as once', async () => {
  const agent = await newAgent();
  expect(await stateOf(agent)).toBe('SERVING');
  expect((await tell(agent, recordOf(agent))).status).toBe(204);
  expect(await stateOf(agent)).toBe('LEFT');
  expect((await tell(agent, recordOf(agent))).status).toBe(204);
});

test('another one’s signature, another one’s record, any other state, and no record change nothing', async () => {
  const [agent, other] = [await newAgent(), await newAgent()];
  expect((await tell(agent, recordOf({ session: agent.session, signer: workerdSigner() }))).status).toBe(403);
  expect((await tell(agent, recordOf(other))).status).toBe(403);
  expect((await tell(agent, recordOf(agent, 'DOWN'))).status).toBe(400);
  expect((await tell(agent, new Uint8Array(20))).status).toBe(400);
  expect((await tell(agent, new Uint8Array(10_000))).status).toBe(413);
  expect([await stateOf(agent), await stateOf(other)]).toEqual(['SERVING', 'SERVING']);
});
