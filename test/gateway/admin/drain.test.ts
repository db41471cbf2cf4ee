/**
 * The gateway's part of draining a node remotely: which roles may, which order is sent, and which event is recorded.
 */
import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import * as z from 'zod';
import { apiKeys, peers } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { workerdCrypto, workerdSigner } from '../../../gateway/issuer/ed25519.ts';
import { createIssuer, GatewayIssuer } from '../../../gateway/issuer/issuer.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { decodeTicket } from '../../../shared/lattice/ticket.ts';
import { FRAMES_READ } from '../../../shared/wire/protocol-constants.ts';
import { seedKey } from '../accounts/seed.ts';
import { TestAgent } from '../registry/agent.ts';
import { connect, newAgent } from './obedient-agent.ts';
import { good, knock, refusal } from './support.ts';

const registry = () => env.REGISTRY.getByName('registry');
const keys = { operator: '', eth: '', consumer: '' };

beforeAll(async () => {
  keys.operator = (await seedKey('operator')).key;
  keys.consumer = (await seedKey('consumer')).key;
  const eth = await seedKey('provider');
  await database(env).update(apiKeys).set({ provider: 'eth' }).where(eq(apiKeys.id, eth.id));
  keys.eth = eth.key;
});

const drain = (session: string, key: string | undefined) => knock('POST', `/admin/nodes/${session}/drain`, { key });

test('its provider and operators drain a node, by an order for this session alone that is written down', async () => {
  const agent = await newAgent('eth');
  const { wishes, reads } = await connect(agent, '25', { kind: 'draining', running: 2 });
  expect(reads).toBe(String(FRAMES_READ));
  for (const key of [keys.eth, keys.operator]) {
    const response = await drain(agent.session, key);
    expect(response.status).toBe(202);
    expect(await response.json()).toEqual({ object: 'node', session: agent.session, draining: true, running: 2 });
  }
  expect(wishes).toEqual([{ action: 'drain' }, { action: 'drain' }]);
  const audit = z.object({ data: z.array(z.looseObject({ action: z.string() })) });
  const { data } = await good(knock('GET', `/admin/audit?object=${agent.session}`, { key: keys.operator }), audit);
  expect(data.map(({ action, before }) => [action, before])).toEqual(
    Array(2).fill(['node.drain', { provider: 'eth' }]),
  );
  const seen = await good(knock('GET', `/admin/nodes/${agent.session}`, { key: keys.eth }), z.looseObject({}));
  expect(seen).toMatchObject({ tunnel: { drains: true, heard_at: expect.any(String) } });
});

test('no other caller can: for other providers the node does not exist, and other roles may not', async () => {
  const agent = await newAgent('psi');
  const { wishes } = await connect(agent, '25', { kind: 'draining', running: 0 });
  await refusal(drain(agent.session, keys.eth), 404, 'not_found');
  await refusal(drain(agent.session, keys.consumer), 403, 'permission_denied');
  await refusal(drain(agent.session, undefined), 401, 'invalid_api_key');
  expect(wishes).toEqual([]);
});

test('a node that is gone is not found; one whose tunnel is not here, or that is another institution’s, is refused and says so', async () => {
  await refusal(drain('a'.repeat(26), keys.operator), 404, 'not_found');
  await refusal(drain('nobody', keys.operator), 400, 'invalid_request');
  const agent = await newAgent('eth');
  await agent.publish();
  await refusal(drain(agent.session, keys.operator), 409, 'order_refused');
  await agent.publish(agent.words('LEFT'));
  await refusal(drain(agent.session, keys.operator), 404, 'not_found');

  const made = createIssuer(Math.floor(Date.now() / 1000));
  const issuer = new GatewayIssuer(made.gateway);
  const signer = workerdSigner();
  const fields = { sessionKey: signer.publicKey, provider: 'eth', cluster: 'euler' };
  const ticket = decodeTicket(issuer.ticket(fields, Math.floor(Date.now() / 1000)), workerdCrypto);
  const root = toBase64url(issuer.certificate.root);
  await database(env).insert(peers).values({ name: 'far', root, url: null, createdAt: 0 });
  await registry().reloadSettings();
  const foreign = new TestAgent(ticket, signer);
  await foreign.publish();
  await refusal(drain(foreign.session, keys.operator), 409, 'order_refused');
  await refusal(drain(foreign.session, keys.eth), 404, 'not_found');
});

test.each([
  ['that did not say what it reads', undefined],
  ['that reads less', '24'],
])('an agent %s is sent nothing that it would break off at', async (_, frames) => {
  const agent = await newAgent('eth');
  const { wishes } = await connect(agent, frames, { kind: 'draining', running: 0 });
  await refusal(drain(agent.session, keys.operator), 409, 'order_refused');
  expect(wishes).toEqual([]);
});

test('an agent’s refusal is passed on', async () => {
  const agent = await newAgent('eth');
  await connect(agent, '25', { kind: 'refused', code: 'wrong_session', message: 'another one follows' });
  const { message } = await refusal(drain(agent.session, keys.operator), 409, 'order_refused');
  expect(message).toContain('another one follows');
});
