/** Tickets are public: only the signature makes a request for work of batches a session's own. */
import { exports } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import { workerdCrypto } from '../../../gateway/issuer/ed25519.ts';
import {
  BATCH_SIGNATURE_HEADER,
  batchRequestMessage,
  CLOCK_HEADER,
  writeBatchSignature,
} from '../../../shared/batch/batch-signature.ts';
import { OUTPUT_HEADER } from '../../../shared/batch/function-files.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { patience } from '../../support/patience.ts';
import { seedToken, TestAgent } from '../registry/agent.ts';

const VERBS = ['lease', 'chunk', 'function', 'commit', 'renew', 'release', 'output'];
const FILE = { name: 'a.txt', bytes: 5, sha256: 'a'.repeat(64) };
const BODY = JSON.stringify({ batch: 'batch_none', chunk: 0, epoch: 0, models: ['m'], results: [], ...FILE });

interface Signed {
  audience?: string;
  verb?: string;
  body?: string;
  at?: number;
}

async function newAgent(): Promise<TestAgent> {
  const { token } = await seedToken();
  const agent = await TestAgent.join(token);
  await agent.publish();
  return agent;
}

function signed(
  agent: TestAgent,
  session: string,
  { audience = 'gateway.test', verb = 'lease', body = BODY, at = Date.now() }: Signed,
) {
  const stamp = { at, nonce: toBase64url(crypto.getRandomValues(new Uint8Array(12))) };
  const asked = { ...stamp, session, audience, path: `/agent/batch/${verb}` };
  const message = batchRequestMessage(asked, new TextEncoder().encode(body), workerdCrypto);
  return writeBatchSignature(stamp, agent.signer.sign(message));
}

async function answerOf({ ticket }: TestAgent, verb: string, signature: string | undefined) {
  const headers = {
    'content-length': String(BODY.length),
    'x-otela-protocol': '2',
    'x-otela-ticket': toBase64url(ticket.bytes),
    ...(signature !== undefined && { [BATCH_SIGNATURE_HEADER]: signature }),
  };
  const url = `https://gateway.test/agent/batch/${verb}`;
  const response = await exports.default.fetch(new Request(url, { method: 'POST', headers, body: BODY }));
  return { status: response.status, clock: response.headers.get(CLOCK_HEADER), text: await response.text() };
}

async function ask(agent: TestAgent, verb: string, signature: string | undefined): Promise<number> {
  return (await answerOf(agent, verb, signature)).status;
}

/** Isolates learn of a new session a moment later, and its object accepts nothing that was signed before it began. */
async function knownAgent(): Promise<TestAgent> {
  const agent = await newAgent();
  const known = async () => (await ask(agent, 'lease', signed(agent, agent.session, {}))) === 204;
  await vi.waitUntil(known, { timeout: patience(30_000), interval: 200 });
  return agent;
}

test('a request for work counts where its session signed it, and for this gateway, path and body alone', async () => {
  const [agent, other] = [await knownAgent(), await knownAgent()];
  for (const verb of VERBS) {
    // There is no lease of this name, so the status shows that the request passed the signature.
    const own = await ask(agent, verb, signed(agent, agent.session, { verb }));
    expect([verb, own]).toEqual([verb, verb === 'lease' ? 204 : 409]);
    const elsewhere = VERBS[(VERBS.indexOf(verb) + 1) % VERBS.length] ?? '';
    const refused = {
      unsigned: undefined,
      'no signature': 'AAAA',
      'another node’s key': signed(other, agent.session, { verb }),
      'another node’s request': signed(other, other.session, { verb }),
      'replayed from another gateway': signed(agent, agent.session, { verb, audience: 'other.test' }),
      'replayed at another path': signed(agent, agent.session, { verb: elsewhere }),
      'replayed with another body': signed(agent, agent.session, { verb, body: '{}' }),
    };
    for (const [what, signature] of Object.entries(refused))
      expect([verb, what, await ask(agent, verb, signature)]).toEqual([verb, what, 403]);
  }
});

test('a request for work is taken once, and about when it was signed', async () => {
  const agent = await knownAgent();
  for (const verb of VERBS) {
    const signature = signed(agent, agent.session, { verb });
    expect([verb, await ask(agent, verb, signature)]).toEqual([verb, verb === 'lease' ? 204 : 409]);
    const again = await answerOf(agent, verb, signature);
    expect([verb, again.status, again.text]).toEqual([verb, 409, expect.stringContaining('already received')]);
  }
  for (const offMs of [-120_000, 120_000]) {
    const { status, clock } = await answerOf(
      agent,
      'renew',
      signed(agent, agent.session, { verb: 'renew', at: Date.now() + offMs }),
    );
    expect(status).toBe(403);
    expect(Math.abs(Number(clock) - Date.now())).toBeLessThan(10_000);
  }
  // Within the permitted difference of clocks.
  expect(await ask(agent, 'renew', signed(agent, agent.session, { verb: 'renew', at: Date.now() + 30_000 }))).toBe(409);
});

test('an agent that signs neither time nor nonce is told to be upgraded', async () => {
  const agent = await knownAgent();
  const [, , former] = signed(agent, agent.session, {}).split('.');
  const { status, text } = await answerOf(agent, 'lease', former);
  expect([status, text]).toEqual([400, expect.stringContaining(BATCH_SIGNATURE_HEADER)]);
});

test('bytes of a file are taken for the announcement that their session signed, and for no other', async () => {
  const agent = await knownAgent();
  const verb = 'output-content';
  const send = async (signature: string, announced: string | undefined) => {
    const headers = {
      'x-otela-protocol': '2',
      'x-otela-ticket': toBase64url(agent.ticket.bytes),
      [BATCH_SIGNATURE_HEADER]: signature,
      ...(announced !== undefined && { [OUTPUT_HEADER]: announced }),
    };
    const request = new Request(`https://gateway.test/agent/batch/${verb}`, { method: 'POST', headers, body: 'hello' });
    return (await exports.default.fetch(request)).status;
  };
  const encoded = (text: string) => toBase64url(new TextEncoder().encode(text));
  const sign = (body: string) => signed(agent, agent.session, { verb, body });
  // There is no such lease, so the status shows that the request passed the signature.
  expect(await send(sign(BODY), encoded(BODY))).toBe(409);
  expect(await send(sign(BODY), encoded(BODY.replace('a.txt', 'b.txt')))).toBe(403);
  expect(await send(sign('hello'), encoded(BODY))).toBe(403);
  expect(await send(sign(BODY), undefined)).toBe(403);
  expect(await send(sign(''), undefined)).toBe(400);
  expect(await send(sign(BODY), '*')).toBe(400);
  expect(await send(sign('x'.repeat(3_000)), encoded('x'.repeat(3_000)))).toBe(400);
  expect(await send(sign('[]'), encoded('[]'))).toBe(400);
});
