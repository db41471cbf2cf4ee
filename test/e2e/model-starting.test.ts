/**
 * A model with only one engine, which is still loading: 503 `model_starting`, listed as loading, and an accurate
 * `retry-after`.
 */
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { ENGINE_MAIN, startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { endAll, eventually, freePort, type Managed, temporaryDirectory } from '../support/processes.ts';
import { chatBody, envelopeOf, MODEL } from '../support/test-cluster.ts';
import { NODE } from '../support/where.ts';

const LOADING_MS = 10_000;

let gateway: Gateway;
let key: string;
let token: string;
let vllm: string;

beforeAll(async () => {
  gateway = await Gateway.start();
  [key, token] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
  // The mock engine, under the name `vllm`, because it gets vLLM's command line.
  vllm = join(await temporaryDirectory('otela-vllm'), 'vllm');
  await writeFile(vllm, `#!/bin/sh\nshift 2\nexec ${NODE} ${ENGINE_MAIN} --model ${MODEL} "$@"\n`);
  await chmod(vllm, 0o755);
});
afterAll(endAll);

async function start(loadingMs = LOADING_MS): Promise<Managed> {
  const port = String(await freePort());
  const command = [vllm, 'serve', MODEL, '--port', port, '--start-after-ms', String(loadingMs)];
  return startAgent({ gateways: [gateway.url], token, command });
}

const get = (path: string, more: RequestInit = {}) =>
  fetch(`${gateway.url}${path}`, { ...more, headers: { authorization: `Bearer ${key}` } });
const ask = () => get('/v1/chat/completions', { method: 'POST', body: JSON.stringify(chatBody({ tokens: 2 })) });

const listSchema = z.object({ data: z.array(z.looseObject({ id: z.string(), state: z.string().optional() })) });
const listed = async (query = '') => listSchema.parse(await (await get(`/v1/models${query}`)).json()).data;

const joined = () =>
  eventually('a node that loads it', 15_000, async () => {
    const nodes = await gateway.nodes();
    const loads = ({ state, models }: (typeof nodes)[number]) => state === 'JOIN' && models[0]?.state === 'loading';
    return nodes.some(loads) ? true : undefined;
  });

it('is 404 before anybody loads it', async () => {
  const response = await ask();
  expect(response.status).toBe(404);
  expect((await envelopeOf(response)).code).toBe('model_not_found');
});

it('is 503 model_starting and listed as loading during its first start, and served after it', async () => {
  const agent = await start();
  await joined();
  const response = await ask();
  expect(response.status).toBe(503);
  expect(Number(response.headers.get('retry-after'))).toBe(30); // not known yet
  expect(await envelopeOf(response)).toMatchObject({ code: 'model_starting', param: 'model' });
  expect(await listed()).toEqual([]);
  expect(await listed('?state=all')).toMatchObject([{ id: MODEL, state: 'loading', ready_in_ms: null }]);
  expect((await get(`/v1/models/${MODEL}`)).status).toBe(503);
  await gateway.serving(1);
  expect((await ask()).status).toBe(200);
  expect(await listed('?state=all')).toMatchObject([{ id: MODEL, state: 'ready' }]);
  await agent.stop();
});

it('is waited for when it starts again and that is known to take less than a request may wait', async () => {
  const agent = await start();
  await joined();
  const from = Date.now();
  expect((await ask()).status).toBe(200);
  expect(Date.now() - from).toBeGreaterThan(LOADING_MS / 3);
  await agent.stop();
});

it('says when to come back, by the starts before, where requests may not wait', async () => {
  await gateway.admin('PATCH', 'settings', { queue: { unary_ms: 0, stream_ms: 0 } });
  await start();
  await joined();
  const response = await eventually('the setting', 3_000, async () => {
    const answer = await ask();
    return answer.status === 503 ? answer : undefined;
  });
  expect((await envelopeOf(response)).code).toBe('model_starting');
  const retryAfterMs = Number(response.headers.get('retry-after')) * 1_000;
  const from = Date.now();
  await gateway.serving(1);
  const tookMs = Date.now() - from;
  expect(retryAfterMs).toBeGreaterThan(tookMs / 2 - 2_000);
  expect(retryAfterMs).toBeLessThan(2 * tookMs + 4_000);
});
