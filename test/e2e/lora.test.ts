/** LoRA adapters: a request for a known adapter loads it on a node that runs its model; an operator unloads it. */
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { startAgent } from '../support/agent.ts';
import { type Engine, startEngine } from '../support/engine.ts';
import { Gateway } from '../support/gateway.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../support/processes.ts';
import { chatBody } from '../support/test-cluster.ts';
import { GATEWAY_MAIN, NODE } from '../support/where.ts';

const BASE = 'stand-in/base';
const ADAPTER = 'ada/law';

let gateway: Gateway;
let engine: Engine;
let key: string;

const models = async (...args: string[]) => {
  const door = ['--url', gateway.url, '--key-file', join(gateway.data, 'admin.key')];
  return (await promisify(execFile)(NODE, [GATEWAY_MAIN, 'models', ...args, ...door])).stdout;
};
const isIn = (state: string) =>
  eventually(`the adapter is ${state}`, 15_000, async () => {
    const [node] = (await gateway.nodes()).filter((one) => one.state === 'SERVING');
    return node?.models.find(({ id }) => id === ADAPTER)?.state === state ? true : undefined;
  });
const ask = (model: string, by = key) =>
  fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${by}` },
    body: JSON.stringify(chatBody({ tokens: 2 }, { model })),
  });
const listSchema = z.object({
  data: z.array(z.looseObject({ id: z.string(), parent: z.string().optional(), state: z.string().optional() })),
});
const listed = async (query: string, by = key) => {
  const response = await fetch(`${gateway.url}/v1/models${query}`, { headers: { authorization: `Bearer ${by}` } });
  return listSchema.parse(await response.json()).data.find(({ id }) => id === ADAPTER);
};

beforeAll(async () => {
  gateway = await Gateway.start();
  engine = await startEngine({ models: [BASE], lora: true });
  atEnd(() => engine.close());
  key = await gateway.createKey();
  const directory = await temporaryDirectory('otela-lora');
  await mkdir(join(directory, ADAPTER), { recursive: true });
  const config = JSON.stringify({ base_model_name_or_path: BASE });
  await writeFile(join(directory, ADAPTER, 'adapter_config.json'), config);
  await startAgent({
    gateways: [gateway.url],
    token: await gateway.createJoinToken(),
    engineUrl: engine.url,
    args: ['--lora-dir', directory],
  });
  await gateway.serving(1, 20_000, BASE);
});
afterAll(endAll);

it('is listed with its model before it is loaded, and a request loads it and is answered by it', async () => {
  await isIn('on-disk');
  expect(await listed('?state=all')).toMatchObject({ state: 'on-disk', parent: BASE, may_start: true });
  expect(await listed('')).toBeUndefined();
  const answer = await ask(ADAPTER);
  expect(answer.status).toBe(200);
  expect(z.object({ model: z.string() }).parse(await answer.json()).model).toBe(ADAPTER);
  await isIn('ready');
  expect(await listed('')).toMatchObject({ parent: BASE });
  expect(engine.adapters()).toEqual([ADAPTER]);
});

it('its usage counts under its own name', async () => {
  const usage = z.object({ data: z.array(z.looseObject({ model: z.string().optional(), requests: z.number() })) });
  await expect
    .poll(async () => {
      const { data } = usage.parse(await gateway.admin('GET', 'usage?group_by=model'));
      return data.find((one) => JSON.stringify(one).includes(ADAPTER))?.requests;
    })
    .toBe(1);
});

it('is unloaded and loaded by order, and stays listed', async () => {
  expect(await models('unload', ADAPTER)).toContain(`unloads ${ADAPTER} (on-disk)`);
  await expect.poll(() => engine.adapters()).toEqual([]);
  await isIn('on-disk');
  expect(await models('list')).toMatch(new RegExp(`${ADAPTER} +on-disk +${BASE}`));
  await expect(models('unload', ADAPTER)).rejects.toThrow(/No node runs ada\/law/);
  expect(await models('load', ADAPTER)).toContain(`loads ${ADAPTER} (loading)`);
  await isIn('ready');
  await expect(models('unload', ADAPTER, '--sleep', '1')).rejects.toThrow(/is an adapter/);
  await models('unload', ADAPTER);
  await isIn('on-disk');
});

it('a key that may use only the model neither sees nor loads the adapter', async () => {
  const poor = await gateway.createKey('poor', { models: [BASE] });
  expect(await listed('?state=all', poor)).toBeUndefined();
  const refused = await ask(ADAPTER, poor);
  expect([403, 404]).toContain(refused.status);
  await refused.body?.cancel();
  const served = await ask(BASE, poor);
  expect(served.status).toBe(200);
  await served.body?.cancel();
  expect(engine.adapters()).toEqual([]);
});
