/** Loading, unloading and moving models by hand: which node gets which order, and which caller is refused and why. */
import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import * as z from 'zod';
import { apiKeys } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { PendingMoves } from '../../../gateway/registry/pending-moves.ts';
import type { DeploymentRequest } from '../../../shared/deployment/deployment-order.ts';
import type { DeploymentAnswer, DeploymentState, TemplateOffer } from '../../../shared/deployment/order-reply.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { seedKey } from '../accounts/seed.ts';
import { evictDurableObject, runInDurableObject } from '../support/durable.ts';
import { connect, newAgent } from './obedient-agent.ts';
import { good, knock, refusal } from './support.ts';

const registry = () => env.REGISTRY.getByName('registry');
const keys = { operator: '', eth: '', psi: '', consumer: '' };
const SINCE = '2026-01-01T00:00:00.000Z';

beforeAll(async () => {
  keys.operator = (await seedKey('operator')).key;
  keys.consumer = (await seedKey('consumer')).key;
  for (const provider of ['eth', 'psi'] as const) {
    const { id, key } = await seedKey('provider');
    await database(env).update(apiKeys).set({ provider }).where(eq(apiKeys.id, id));
    keys[provider] = key;
  }
});

const order = (verb: string, body: object, key: string | undefined = keys.operator) =>
  knock('POST', `/admin/replicas/${verb}`, { key, body });

const offer = (template: string, allow: string[]): TemplateOffer => ({
  template,
  parameters: {
    model: { type: 'string', allow },
    tp: { type: 'integer', min: 1, max: 8, default: 1 },
  },
});

const stateOf = (id: string, state: DeploymentState['state'], template = 'vllm'): DeploymentState => ({
  id,
  template,
  parameters: {},
  state,
  since: SINCE,
});

/** Answers as an agent with these templates that runs `deployment`. */
function answering(offers: TemplateOffer[], deployment?: DeploymentState) {
  return (wish: DeploymentRequest | undefined): DeploymentAnswer => {
    if (wish?.action === 'start') return { kind: 'accepted', deployment: stateOf(wish.id, 'starting', wish.template) };
    if (wish?.action === 'stop' && deployment !== undefined)
      return { kind: 'accepted', deployment: { ...deployment, state: 'stopping' } };
    return { kind: 'described', offers, ...(deployment === undefined ? {} : { deployment }) };
  };
}

async function idleNode(provider: string, offers: TemplateOffer[], deployment?: DeploymentState) {
  const agent = await newAgent(provider);
  const labels = { 'otela.accepts': offers.map(({ template }) => template).join(',') };
  const { wishes } = await connect(
    agent,
    '25',
    answering(offers, deployment),
    agent.words('JOIN', { labels, models: [] }),
  );
  return { agent, wishes, session: agent.session };
}

async function servingNode(provider: string, model: string, id: string) {
  const agent = await newAgent(provider);
  const labels = { 'otela.deployment': id };
  const words = agent.words('SERVING', { labels, models: [{ id: model, state: 'ready' }] });
  const { wishes } = await connect(agent, '25', answering([], stateOf(id, 'running')), words);
  return { agent, wishes, session: agent.session };
}

const replica = z.object({ session: z.string(), deployment: z.object({ id: z.string(), template: z.string() }) });

test('a provider loads a model on an idle node of its own, with the template that accepts it, and it is written down', async () => {
  const others = await idleNode('psi', [offer('any', ['*'])]);
  const node = await idleNode('eth', [offer('llama', ['meta/*']), offer('qwen', ['qwen/*'])]);
  const answer = await good(order('load', { model: 'qwen/a', parameters: { tp: 2 } }, keys.eth), replica);
  expect(answer).toMatchObject({ session: node.session, deployment: { template: 'qwen' } });
  expect(node.wishes).toEqual([
    { action: 'start', id: answer.deployment.id, template: 'qwen', parameters: { model: 'qwen/a', tp: 2 } },
  ]);
  expect(others.wishes).toEqual([]);
  const audit = z.object({ data: z.array(z.looseObject({ action: z.string() })) });
  const { data } = await good(knock('GET', `/admin/audit?object=${node.session}`, { key: keys.operator }), audit);
  expect(data.map(({ action }) => action)).toEqual(['deployment.start']);
});

test('a load is refused with the reason: no template, a value that the owner does not allow, a busy node', async () => {
  const node = await idleNode('eth', [offer('llama', ['meta/*'])]);
  const named = { session: node.session };
  const strange = await refusal(order('load', { model: 'evil/a', ...named }), 422, 'unprocessable_content');
  expect(strange.message).toMatch(/llama.*"evil\/a" is not allowed \(allowed: meta\/\*\)/);
  const missing = await refusal(
    order('load', { model: 'meta/a', template: 'rm', ...named }),
    422,
    'unprocessable_content',
  );
  expect(missing.message).toMatch(/no template rm \(known: llama\)/);
  await refusal(order('load', { model: '', ...named }), 400, 'invalid_request');
  await refusal(order('load', { model: 'meta/a', argv: ['sh'], ...named }), 400, 'invalid_request');
  expect(node.wishes).toEqual([]);

  const busy = await idleNode('eth', [offer('llama', ['meta/*'])], stateOf('dep-9', 'running'));
  const refused = await refusal(order('load', { model: 'meta/a', session: busy.session }), 409, 'deployment_refused');
  expect(refused.message).toMatch(/is busy: deployment dep-9 of template vllm is running/);
  expect(busy.wishes).toEqual([]);
});

test('a provider orders no node of another provider, and is told whose nodes it may order', async () => {
  const idle = await idleNode('psi', [offer('any', ['*'])]);
  const serving = await servingNode('psi', 'psi/served', 'dep-psi');
  const load = await refusal(order('load', { model: 'a', session: idle.session }, keys.eth), 404, 'not_found');
  expect(load.message).toBe(`Provider eth has no session ${idle.session}.`);
  for (const body of [{}, { session: serving.session }]) {
    const unload = await refusal(order('unload', { model: 'psi/served', ...body }, keys.eth), 404, 'not_found');
    expect(unload.message).toMatch(/of provider eth .*runs psi\/served/);
  }
  await refusal(order('move', { model: 'psi/served' }, keys.eth), 404, 'not_found');
  const path = `/admin/nodes/${idle.session}/deployment`;
  await refusal(knock('PUT', path, { key: keys.eth, body: { template: 'any' } }), 404, 'not_found');
  await refusal(order('load', { model: 'a', session: idle.session }, keys.consumer), 403, 'permission_denied');
  expect([idle.wishes, serving.wishes]).toEqual([[], []]);
});

test('a model is unloaded from the node that runs it; of several nodes one must be named; a fixed command is not ended', async () => {
  const one = await servingNode('eth', 'eth/twice', 'dep-1');
  const answer = await good(order('unload', { model: 'eth/twice', drain_ms: 5 }, keys.eth), replica);
  expect(answer.session).toBe(one.session);
  expect(one.wishes).toEqual([{ action: 'stop', id: 'dep-1', drain_ms: 5 }]);
  const two = await servingNode('eth', 'eth/twice', 'dep-2');
  const { message } = await refusal(order('unload', { model: 'eth/twice' }), 409, 'conflict');
  for (const { session } of [one, two]) expect(message).toContain(session);
  await good(order('unload', { model: 'eth/twice', session: two.session }), replica);
  expect(two.wishes).toMatchObject([{ action: 'stop', id: 'dep-2' }]);

  const fixed = await newAgent('eth');
  const models = [{ id: 'eth/fixed', state: 'ready' as const }];
  const { wishes } = await connect(fixed, '25', answering([]), fixed.words('SERVING', { models }));
  const refused = await refusal(order('unload', { model: 'eth/fixed' }), 409, 'deployment_refused');
  expect(refused.message).toContain("its owner's command");
  expect(wishes).toEqual([]);
});

/** Publishes the session of a new deployment, as the agent of an idle node does after it accepted. */
async function serves(provider: string, model: string, labels: Record<string, string>) {
  const agent = await newAgent(provider);
  await connect(agent, '25', answering([]), agent.words('JOIN', { labels, models: [] }));
  await agent.publish(agent.words('SERVING', { labels, models: [{ id: model, state: 'ready' }] }));
}

test('a moved model is unloaded from its old node when the new one serves it, not before, also after a restart', async () => {
  const old = await servingNode('eth', 'eth/moved', 'dep-old');
  const idle = await idleNode('eth', [offer('vllm', ['eth/*'])]);
  const body = { model: 'eth/moved', from: old.session, to: idle.session, id: 'dep-new', drain_ms: 7 };
  const answer = await good(order('move', body, keys.eth), replica.extend({ from: z.string() }));
  expect(answer).toMatchObject({ session: idle.session, from: old.session, deployment: { id: 'dep-new' } });
  expect(idle.wishes).toMatchObject([{ action: 'start', id: 'dep-new' }]);
  // Another provider's node, or the same node with another model, does not end the move.
  await serves('psi', 'eth/moved', { 'otela.deployment': 'dep-new' });
  await serves('eth', 'eth/other', { 'otela.deployment': 'dep-new' });
  await evictDurableObject(registry());
  await registry().ready();
  expect(old.wishes).toEqual([]);
  await serves('eth', 'eth/moved', { 'otela.deployment': 'dep-new' });
  await expect.poll(() => old.wishes).toEqual([{ action: 'stop', id: 'dep-old', drain_ms: 7 }]);
});

test('if the new node fails, the old one continues', async () => {
  const old = await servingNode('eth', 'eth/kept', 'dep-kept');
  await idleNode('eth', [offer('vllm', ['eth/kept'])]);
  await good(order('move', { model: 'eth/kept', id: 'dep-broken' }, keys.eth), replica);
  const labels = { 'otela.deployment-failed': 'dep-broken the engine ended with code 3' };
  const agent = await newAgent('eth');
  await connect(agent, '25', answering([]), agent.words('JOIN', { labels, models: [] }));
  await serves('eth', 'eth/kept', { 'otela.deployment': 'dep-broken' });
  expect(old.wishes).toEqual([]);
});

test('moves that wait are bounded, and forgotten after a day', async () => {
  const stub = env.REGISTRY.getByName('moves-only');
  await runInDurableObject(stub, (_, { storage }) => {
    const moves = new PendingMoves(storage);
    const move = (deployment: string) => ({
      model: 'm',
      deployment,
      provider: 'eth',
      fromDeployment: 'old',
      fromProvider: 'eth',
      drainMs: 0,
    });
    for (let n = 0; n < 256; n++) expect(moves.add(move(`d${n}`), 0)).toBe(true);
    expect(moves.add(move('late'), 1)).toBe(false);
    const day = 24 * 60 * 60_000;
    const entry = {
      provider: 'eth',
      state: 'SERVING',
      labels: { 'otela.deployment': 'd0' },
      models: [{ id: 'm', state: 'ready' }],
    } as unknown as RegistryEntry;
    expect(moves.finishedBy(entry, day + 1)).toBeUndefined();
    expect(new PendingMoves(storage).add(move('next'), day + 1)).toBe(true);
  });
});
