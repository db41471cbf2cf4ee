import { env } from 'cloudflare:workers';
import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { settings } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { readGatewaySettings, timeoutsOf } from '../../../gateway/accounts/gateway-settings.ts';
import { PolicySelector } from '../../../gateway/routing/policy-selector.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock, refusal } from './support.ts';

let key: string;
beforeAll(async () => {
  key = (await seedKey('operator')).key;
});

const admin = (method: string, path: string, body?: unknown) =>
  knock(method, `/admin${path}`, { key, ...(body === undefined ? {} : { body }) });
const anything = z.looseObject({});

test('a model has a policy, a class, other names, fallbacks and retries; what a PUT leaves out goes back', async () => {
  const set = {
    class: 'reasoning',
    policy: 'round-robin',
    aliases: ['gpt-large', 'org/other name'],
    fallbacks: ['org/small'],
    max_retries: 1,
    first_token_ms: 500,
  };
  expect(await good(admin('PUT', '/models/org/large', set), anything)).toMatchObject({ id: 'org/large', ...set });
  const { models } = await readGatewaySettings(env);
  expect(models['org/large']).toEqual(set);
  const back = { class: 'standard', policy: null, aliases: [], fallbacks: [], max_retries: null, first_token_ms: null };
  expect(await good(admin('PUT', '/models/org/large', {}), anything)).toMatchObject(back);
  expect((await readGatewaySettings(env)).models['org/large']).toEqual({});
});

test.each([
  ['a policy that nobody has', { policy: 'clever' }, 'policy', 400],
  ['a class that there is not', { class: 'slow' }, 'class', 400],
  ['its own name as another one', { aliases: ['m'] }, 'aliases', 422],
  ['a name twice', { aliases: ['x', 'x'] }, 'aliases', 422],
  ['itself as its fallback', { fallbacks: ['m'] }, 'fallbacks', 422],
  ['a chain without end', { fallbacks: ['a', 'b', 'c', 'd', 'e'] }, 'fallbacks', 400],
  ['more retries than are good', { max_retries: 11 }, 'max_retries', 400],
  ['no time for a first token', { first_token_ms: 0 }, 'first_token_ms', 400],
] as const)('a model cannot be given %s', async (_, set, param, status) => {
  const code = status === 400 ? 'invalid_request' : 'unprocessable_content';
  expect((await refusal(admin('PUT', '/models/m', set), status, code)).param).toBe(param);
});

test('a name stands for one model', async () => {
  await good(admin('PUT', '/models/first', { aliases: ['chat'] }), anything);
  const { message } = await refusal(
    admin('PUT', '/models/second', { aliases: ['chat'] }),
    422,
    'unprocessable_content',
  );
  expect(message).toContain('"first"');
  await good(admin('PUT', '/models/first', { aliases: ['chat', 'talk'] }), anything);
});

test('time-outs are the model’s, else those of its class, the installation’s before those that are shipped', async () => {
  await good(admin('PUT', '/models/own', { class: 'reasoning', stall_ms: 1_000 }), anything);
  const of = async (model: string) => timeoutsOf(await readGatewaySettings(env), model);
  expect(await of('own')).toEqual({ first_byte_ms: 1_800_000, stall_ms: 1_000 });
  expect(await of('any')).toEqual({ first_byte_ms: 900_000, stall_ms: 120_000 });
  const routing = { timeouts: { reasoning: { first_byte_ms: 5_000 }, standard: { stall_ms: 6_000 } } };
  expect(await good(admin('PATCH', '/settings', { routing }), anything)).toMatchObject({ routing });
  expect(await of('own')).toEqual({ first_byte_ms: 5_000, stall_ms: 1_000 });
  expect(await of('any')).toEqual({ first_byte_ms: 900_000, stall_ms: 6_000 });
  await good(admin('PATCH', '/settings', { routing: null }), anything);
});

test('a policy that was removed from the gateway is ignored: its time-outs stay, and it cannot be set again', async () => {
  const routing = { policy: 'taken-out', timeouts: { standard: { stall_ms: 7_000 } } };
  await database(env).insert(settings).values({ name: 'routing', value: routing, updatedAt: 0 });
  const stored = await readGatewaySettings(env);
  expect(timeoutsOf(stored, 'any').stall_ms).toBe(7_000);
  expect(
    new PolicySelector().for(stored, { routing: [] }, { model: 'any', priority: 'interactive', inputTokens: 1 }, 'any')
      .name,
  ).toBe('least-load');
  await refusal(admin('PATCH', '/settings', { routing }), 400, 'invalid_request');
  await good(admin('PATCH', '/settings', { routing: null }), anything);
});

test('a model’s weights are put, read, listed and deleted; GPUs by all of their common names', async () => {
  const weights = [
    { gpu: 'nvidia h100 80GB', weight: 3 },
    { cluster: 'alps', class: 'batch', weight: 0.5 },
    { weight: 1 },
  ];
  const path = `/routing/${encodeURIComponent('org/m')}`;
  const said = await good(admin('PUT', path, { weights }), anything);
  const kept = [{ gpu: 'H100', weight: 3 }, ...weights.slice(1)];
  expect(said).toMatchObject({ object: 'routing', model: 'org/m', weights: kept });
  expect(await good(admin('GET', '/routing/org/m'), anything)).toEqual(said);
  expect(await good(admin('GET', '/routing'), anything)).toMatchObject({ data: [said] });
  await good(admin('PUT', '/models/org/m', { first_byte_ms: 7 }), anything);
  expect((await readGatewaySettings(env)).models['org/m']).toEqual({ first_byte_ms: 7, weights: kept });
  expect(await good(admin('DELETE', path), anything)).toEqual({ object: 'routing', model: 'org/m', deleted: true });
  expect(await good(admin('DELETE', path), anything)).toMatchObject({ deleted: false });
  await refusal(admin('GET', path), 404, 'not_found');
  expect((await readGatewaySettings(env)).models['org/m']).toEqual({ first_byte_ms: 7 });
});

test.each([
  ['no rule', { weights: [] }],
  ['a weight below nothing', { weights: [{ weight: -1 }] }],
  ['no weight', { weights: [{ cluster: 'alps' }] }],
  ['a session that is none', { weights: [{ session: 'x', weight: 1 }] }],
  ['a class that there is not', { weights: [{ class: 'urgent', weight: 1 }] }],
  ['a word that means nothing', { weights: [{ rack: 'a', weight: 1 }] }],
  ['more rules than a snapshot carries', { weights: Array.from({ length: 501 }, () => ({ weight: 1 })) }],
])('weights with %s are refused', async (_, body) => {
  await refusal(admin('PUT', '/routing/m', body), 400, 'invalid_request');
});

const KINDS = [
  { name: 'chat', input: 100, output: 300, share: 0.75 },
  { name: 'document', input: 9_000, output: 50, share: 0.25 },
];

test('weights by kind come with the kinds that they name, and both reach requests', async () => {
  const weights = [{ kind: 'chat', gpu: 'H100', weight: 2 }, { weight: 1 }];
  expect(await good(admin('PUT', '/routing/by-kind', { weights, kinds: KINDS }), anything)).toMatchObject({
    weights,
    kinds: KINDS,
  });
  expect((await readGatewaySettings(env)).models['by-kind']).toEqual({ weights, kinds: KINDS });
  const { message } = await refusal(
    admin('PUT', '/routing/by-kind', { weights: [{ kind: 'image', weight: 1 }], kinds: KINDS }),
    422,
    'unprocessable_content',
  );
  expect(message).toContain('"image"');
  // Weights without kinds remove the old kinds.
  expect(await good(admin('PUT', '/routing/by-kind', { weights: [{ weight: 1 }] }), anything)).toMatchObject({
    kinds: [],
  });
  expect((await readGatewaySettings(env)).models['by-kind']).toEqual({ weights: [{ weight: 1 }] });
});

test.each([
  ['a name twice', [KINDS[0], KINDS[0]], 422],
  ['no length', [{ ...KINDS[0], input: 0 }]],
  ['a share above all', [{ ...KINDS[0], share: 2 }]],
  ['more of them than a snapshot carries', Array.from({ length: 13 }, (_, i) => ({ ...KINDS[0], name: `k${i}` }))],
])('kinds with %s are refused', async (_, kinds, status = 400) => {
  const code = status === 400 ? 'invalid_request' : 'unprocessable_content';
  await refusal(admin('PUT', '/routing/m', { weights: [{ weight: 1 }], kinds }), status, code);
});

test('a workload by kind has at most two days of minutes', async () => {
  expect(await good(admin('GET', '/workload?by=kind&window=10m'), anything)).toMatchObject({ slot_ms: 60_000 });
  const { message } = await refusal(admin('GET', '/workload?by=kind&window=1h&slot=1s'), 422, 'unprocessable_content');
  expect(message).toContain('2880');
  await refusal(admin('GET', '/workload?by=kind&slot=0s'), 400, 'invalid_request');
});

test('keys and projects have their own policy, aliases and fallbacks', async () => {
  const routing = { policy: 'random', aliases: { best: 'org/m' }, fallbacks: { 'org/m': ['org/n'] } };
  const made = await good(admin('POST', '/keys', { name: 'k', routing }), z.looseObject({ id: z.string() }));
  expect(made).toMatchObject({ routing });
  expect(await good(admin('PATCH', `/keys/${made.id}`, { routing: null }), anything)).toMatchObject({ routing: null });
  expect(await good(admin('POST', '/projects', { name: 'p', routing }), anything)).toMatchObject({ routing });
  await refusal(admin('POST', '/keys', { name: 'k', routing: { policy: 'clever' } }), 400, 'invalid_request');
});
