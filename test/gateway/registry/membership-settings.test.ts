/**
 * An operator's settings for the membership take effect: which agents are admitted, and how long sessions that LEFT are
 * shown.
 */
import { env, exports } from 'cloudflare:workers';
import { afterEach, expect, test, vi } from 'vitest';
import * as z from 'zod';
import { peers, settings } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { workerdSigner } from '../../../gateway/issuer/ed25519.ts';
import { createIssuer, GatewayIssuer } from '../../../gateway/issuer/issuer.ts';
import { toBase64url } from '../../../shared/lattice/base64url.ts';
import { patience } from '../../support/patience.ts';
import { evictDurableObject } from '../support/durable.ts';
import { admitRequest, seedToken, TestAgent } from './agent.ts';

const NOW_S = Math.floor(Date.now() / 1000);
const HOUR_MS = 3_600_000;
const registry = () => env.REGISTRY.getByName('registry');
const answered = z.object({ error: z.object({ message: z.string() }).optional(), membership: z.unknown().optional() });

async function set(name: string, value: unknown): Promise<void> {
  const row = { name, value, updatedAt: 0 };
  await database(env).insert(settings).values(row).onConflictDoUpdate({ target: settings.name, set: { value } });
  await registry().reloadSettings();
}

afterEach(async () => {
  vi.useRealTimers();
  await database(env).delete(settings);
  await registry().reloadSettings();
});

/** Status and message for an agent that claims to be `version`; isolates learn of a setting a moment later. */
async function knock(version: string | undefined) {
  const { token } = await seedToken();
  const asked = { protocol: 2, public_key: toBase64url(workerdSigner().publicKey), version };
  const response = await admitRequest(token, asked);
  const { error, membership } = answered.parse(await response.json());
  return { status: response.status, message: error?.message, membership };
}

test('agents below the minimum version are told why they are not admitted, and so are those that do not say theirs', async () => {
  expect((await knock(undefined)).status).toBe(200);
  await set('minimum_agent_version', '0.3.0');
  await vi.waitFor(async () => expect((await knock('0.2.9')).status).toBe(403), {
    timeout: patience(30_000),
    interval: 100,
  });
  expect((await knock('0.2.9')).message).toMatch(/0\.3\.0.*0\.2\.9/);
  expect((await knock('0.3.0-rc.1')).status).toBe(403);
  expect((await knock('new')).status).toBe(403);
  expect((await knock(undefined)).status).toBe(403);
  for (const good of ['0.3.0', '0.10.0', '1.0.0']) expect((await knock(good)).status).toBe(200);
});

test('an agent hears the times of the mesh with its admission', async () => {
  await set('membership', { probe_ms: 7_000, retention_ms: 2 * HOUR_MS });
  await vi.waitFor(
    async () => expect((await knock('1.0.0')).membership).toMatchObject({ probe_ms: 7_000, retention_ms: 2 * HOUR_MS }),
    { timeout: patience(30_000), interval: 100 },
  );
});

test('a node that LEFT is shown as long as is set, also by a registry that slept meanwhile', async () => {
  const agent = await TestAgent.join((await seedToken()).token);
  await agent.publish();
  await agent.publish(agent.words('LEFT'));
  const isShown = async () => {
    const delta = await registry().snapshot(null);
    return delta?.entries.some(({ session }) => session === agent.session);
  };
  await set('membership', { retention_ms: 4 * HOUR_MS });
  vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + 3 * HOUR_MS });
  await evictDurableObject(registry());
  expect(await isShown()).toBe(true);
  await set('membership', { retention_ms: 2 * HOUR_MS });
  expect(await isShown()).toBe(false);
});

/** The response of `POST /agent/gateways` to a ticket. */
async function gatewaysFor(ticket: Uint8Array, more: Record<string, string> = {}): Promise<unknown> {
  const headers = { 'x-otela-protocol': '2', 'x-otela-ticket': toBase64url(ticket), ...more };
  const request = new Request('https://gateway.test/agent/gateways', { method: 'POST', headers });
  return (await exports.default.fetch(request)).json();
}

test('an agent of this institution is told of peers’ gateways and of times; one that a peer admitted is told nothing', async () => {
  const ours = await TestAgent.join((await seedToken()).token);
  const elsewhere = createIssuer(NOW_S);
  const foreign = new GatewayIssuer(elsewhere.gateway);
  const root = toBase64url(foreign.certificate.root);
  await database(env).insert(peers).values({ name: 'eth', root, url: 'https://eth.example', createdAt: 0 });
  await set('membership', { probe_ms: 9_000 });
  await vi.waitFor(
    async () =>
      expect(await gatewaysFor(ours.ticket.bytes)).toMatchObject({
        data: [{ url: 'https://eth.example' }],
        membership: { probe_ms: 9_000 },
      }),
    { timeout: patience(30_000), interval: 100 },
  );
  const node = { provider: 'lab', cluster: 'euler', sessionKey: workerdSigner().publicKey };
  const theirs = foreign.ticket(node, NOW_S);
  expect(await gatewaysFor(theirs)).toEqual({ object: 'list', peer: true, data: [] });
  await database(env).delete(peers);
});

test('an agent with an ingress is told the shares of its region while a plan is valid, and a peer’s agent is not', async () => {
  const agent = await TestAgent.join((await seedToken()).token);
  const [taken_at, expires_at] = [Date.now(), Date.now() + 60_000];
  const models = { m: { shares: { ch: 1 }, origins: { fi: { shares: { fi: 1 } } } } };
  const plan = { planner: 'p', sequence: 1, holds_ms: 60_000, models, warm: [], notes: [], taken_at, expires_at };
  await set('region_plan', plan);
  const told = (region: string) => gatewaysFor(agent.ticket.bytes, { 'x-otela-region': region });
  await vi.waitFor(
    async () => expect(await told('fi')).toMatchObject({ shares: { models: { m: { shares: { fi: 1 } } } } }),
    { timeout: patience(30_000), interval: 100 },
  );
  expect(await told('')).toMatchObject({ shares: { models: { m: { shares: { ch: 1 } } } } });
  expect(await gatewaysFor(agent.ticket.bytes)).not.toHaveProperty('shares');
  const foreign = new GatewayIssuer(createIssuer(NOW_S).gateway);
  const root = toBase64url(foreign.certificate.root);
  await database(env).insert(peers).values({ name: 'eth', root, url: 'https://eth.example', createdAt: 0 });
  const theirs = foreign.ticket({ provider: 'lab', cluster: 'e', sessionKey: workerdSigner().publicKey }, NOW_S);
  await registry().reloadSettings();
  await vi.waitFor(
    async () =>
      expect(await gatewaysFor(theirs, { 'x-otela-region': 'fi' })).toEqual({ object: 'list', peer: true, data: [] }),
    { timeout: patience(30_000), interval: 100 },
  );
  await database(env).delete(peers);
});
