/** A sleeping engine: an operator puts it to sleep, it is listed with its wake time, and a request wakes it. */
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { startAgent } from '../support/agent.ts';
import { type Engine, startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, endAll, eventually } from '../support/processes.ts';
import { chatBody, envelopeOf } from '../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE } from '../support/where.ts';

const MODEL = 'stand-in/sleeper';
const WAKE_MS = 1_500;

let gateway: Gateway;
let engine: Engine;
let key: string;

const models = async (...args: string[]) => {
  const door = ['--url', gateway.url, '--key-file', join(gateway.data, 'admin.key')];
  return (await promisify(execFile)(NODE, [GATEWAY_MAIN, 'models', ...args, ...door])).stdout;
};
const stateOf = async () => {
  const [node] = (await gateway.nodes()).filter(({ state }) => state === 'SERVING');
  return node?.models.find(({ id }) => id === MODEL)?.state;
};
const isIn = (state: string) =>
  eventually(`the model is ${state}`, 15_000, async () => ((await stateOf()) === state ? true : undefined));
const ask = (more: object = {}, headers: Record<string, string> = {}) =>
  fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, ...headers },
    body: JSON.stringify({ ...chatBody({ tokens: 2 }, { model: MODEL }), ...more }),
  });

beforeAll(async () => {
  gateway = await Gateway.start();
  engine = await startEngine({ models: [MODEL], sleepMode: true });
  atEnd(() => engine.close());
  key = await gateway.createKey();
  await startAgent({ gateways: [gateway.url], token: await gateway.createJoinToken(), engineUrl: engine.url });
  await gateway.serving(1, 20_000, MODEL);
});
afterAll(endAll);

it('is put to sleep by order, listed as asleep, and a request wakes it and gets its answer', async () => {
  expect(await models('unload', MODEL, '--sleep', '2')).toContain(`unloads ${MODEL} (asleep)`);
  await isIn('asleep');
  await expect.poll(() => engine.sleepLevel()).toBe(2);
  expect(await models('list')).toMatch(new RegExp(`${MODEL} +asleep`));
  engine.control({ managementMs: WAKE_MS / 3 }); // three calls wake it from level 2
  const answer = await ask();
  expect(answer.status).toBe(200);
  await answer.body?.cancel();
  expect(engine.sleepLevel()).toBe(0);
  await isIn('ready');
});

it('is listed with the measured time of its last wake', async () => {
  await models('unload', MODEL, '--sleep', '1');
  await isIn('asleep');
  const headers = { authorization: `Bearer ${key}` };
  const list = z.object({
    data: z.array(z.looseObject({ id: z.string(), state: z.string(), ready_in_ms: z.number().nullable().optional() })),
  });
  const { data } = list.parse(await (await fetch(`${gateway.url}/v1/models?state=all`, { headers })).json());
  const listed = data.find(({ id }) => id === MODEL);
  expect(listed).toMatchObject({ state: 'asleep', may_start: true });
  expect(listed?.ready_in_ms).toBeGreaterThan(WAKE_MS - 1);
  const served = list.partial().parse(await (await fetch(`${gateway.url}/v1/models`, { headers })).json());
  expect(JSON.stringify(served)).not.toContain(MODEL);
});

it('is woken by a request that does not wait, which is told when to try again', async () => {
  const refused = await ask({}, { 'x-otela-wait': '0' });
  expect(refused.status).toBe(503);
  const { code, message } = await envelopeOf(refused);
  expect([code, message]).toEqual(['model_starting', expect.stringMatching(/its engine sleeps and is being woken/)]);
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
  await isIn('ready');
});

it('a key that may not use the model wakes nothing', async () => {
  await models('unload', MODEL, '--sleep', '1');
  await isIn('asleep');
  const poor = await gateway.createKey('poor', { models: ['other/*'] });
  const response = await fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${poor}` },
    body: JSON.stringify(chatBody({}, { model: MODEL })),
  });
  expect([403, 404]).toContain(response.status);
  await response.body?.cancel();
  // The order below comes after all others.
  await models('load', MODEL);
  await isIn('ready');
  const woken = engine.requests.filter(({ url }) => url.startsWith('/wake_up')).length;
  expect(woken).toBe(2 + 1 + 1); // two calls wake it from level 2
});
