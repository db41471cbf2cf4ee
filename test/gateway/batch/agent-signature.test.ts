/** Tickets are public: a request for work of batches is a session's own by its signature alone. */
import { exports } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import { workerdCrypto } from '../../../gateway/issuer/crypto.ts';
import { BATCH_SIGNATURE_HEADER, batchRequestMessage } from '../../../shared/batch/agent-request.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { seedToken, TestAgent } from '../registry/agent.ts';

const VERBS = ['lease', 'chunk', 'function', 'commit', 'renew', 'release'];
const BODY = JSON.stringify({ batch: 'batch_none', chunk: 0, epoch: 0, models: ['m'], results: [] });

interface Signed {
  audience?: string;
  verb?: string;
  body?: string;
}

async function newAgent(): Promise<TestAgent> {
  const { token } = await seedToken();
  const agent = await TestAgent.join(token);
  await agent.publish();
  return agent;
}

function signed(agent: TestAgent, session: string, { audience = 'gateway.test', verb = 'lease', body = BODY }: Signed) {
  const asked = { session, audience, path: `/agent/batch/${verb}` };
  return toBase64url(agent.signer.sign(batchRequestMessage(asked, new TextEncoder().encode(body), workerdCrypto)));
}

async function ask({ ticket }: TestAgent, verb: string, signature: string | undefined): Promise<number> {
  const headers = {
    'content-length': String(BODY.length),
    'x-otela-protocol': '2',
    'x-otela-ticket': toBase64url(ticket.bytes),
    ...(signature !== undefined && { [BATCH_SIGNATURE_HEADER]: signature }),
  };
  const url = `https://gateway.test/agent/batch/${verb}`;
  const response = await exports.default.fetch(new Request(url, { method: 'POST', headers, body: BODY }));
  await response.arrayBuffer();
  return response.status;
}

test('a request for work counts where its session signed it, and for this gateway, path and body alone', async () => {
  const [agent, other] = [await newAgent(), await newAgent()];
  const known = async (one: TestAgent) => (await ask(one, 'lease', signed(one, one.session, {}))) !== 503;
  // Isolates hear of a new session a moment later.
  for (const one of [agent, other]) await vi.waitUntil(() => known(one), { timeout: 20_000, interval: 200 });
  for (const verb of VERBS) {
    // No lease of this name: what is beyond the signature was reached.
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
}, 40_000);
