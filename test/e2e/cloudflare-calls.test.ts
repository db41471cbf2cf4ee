/**
 * Calls of D1, R2, objects and the network by the most usual requests, on Cloudflare's local runtime. Cloudflare limits
 * the calls of an invocation; the local runtime does not, and it reports no CPU time.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { endAll } from '../support/processes.ts';
import { chatBody } from '../support/test-cluster.ts';
import { openTunnelBench, type TunnelBench } from '../support/tunnel/tunnel-bench.ts';

/** docs/deploy.md states both. Cloudflare's Free plan allows 50 of each; the Paid plan more. */
const CALLS_MAX = 16;
const STATEMENTS_MAX = 10;
/** Calls of all invocations of objects together, caused by one request. */
const OBJECT_CALLS_MAX = 32;
const REPEATS = 5;

const countsSchema = z.record(z.string(), z.record(z.string(), z.number()));
const idSchema = z.object({ id: z.string() });

let shop: TunnelBench;
let file = '';
let batch = '';

const chat = (more: object) => shop.ask('/v1/chat/completions', chatBody({ tokens: 5 }, more));
const get = (path: string) => shop.ask(path, undefined, { method: 'GET' });
const admin = async (method: string, path: string, body?: unknown) => {
  await shop.admin(method, path, body);
  return new Response();
};

/** Uploads the input of a batch. */
function upload(): Promise<Response> {
  const line = { custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: chatBody({ tokens: 1 }) };
  const form = new FormData();
  form.set('purpose', 'batch');
  form.set('file', new File([`${JSON.stringify(line)}\n`], 'in.jsonl'));
  const headers = { authorization: `Bearer ${shop.key}` };
  return fetch(new URL('/v1/files', shop.url), { method: 'POST', body: form, headers });
}

function createBatch(): Promise<Response> {
  const body = { input_file_id: file, endpoint: '/v1/chat/completions', completion_window: '24h' };
  return shop.ask('/v1/batches', body);
}

beforeAll(async () => {
  shop = await openTunnelBench({}, 'counting-worker.ts');
  await shop.addNode();
  await (await chat({})).text();
  file = idSchema.parse(await (await upload()).json()).id;
  batch = idSchema.parse(await (await createBatch()).json()).id;
});
afterAll(endAll);

/** Calls since the last time: of the Worker by binding, and of all objects together. */
async function calls(): Promise<{ worker: Record<string, number>; objects: number }> {
  const response = await fetch(new URL('/__calls', shop.url));
  const { worker = {}, any = {}, ...objects } = countsSchema.parse(await response.json());
  const sum = Object.values(objects).flatMap((own) => Object.values(own));
  return { worker: { ...worker, ...any }, objects: sum.reduce((all, one) => all + one, 0) };
}

it.each<[string, number, () => Promise<Response>]>([
  ['a chat completion', 4, () => chat({})],
  ['a stream', 4, () => chat({ stream: true })],
  ['the list of models', 2, () => get('/v1/models')],
  ['the list of nodes', 2, () => get('/v1/registry/nodes')],
  ['an upload', CALLS_MAX, upload],
  ['the content of a file', 4, () => get(`/v1/files/${file}/content`)],
  ['a new batch', CALLS_MAX, createBatch],
  ['the state of a batch', 4, () => get(`/v1/batches/${batch}`)],
  ['usage', 4, () => admin('GET', 'usage')],
  ['a new key', 6, () => admin('POST', 'keys', { name: 'a' })],
  ['readiness', 4, () => get('/readyz')],
])('%s makes at most %i calls', async (_, most, ask) => {
  await calls();
  for (let n = 0; n < REPEATS; n++) {
    const response = await ask();
    expect(response.status, await response.text()).toBe(200);
  }
  // Work after a response may count for the next test.
  const { worker, objects } = await calls();
  const sum = Object.values(worker).reduce((all, one) => all + one, 0);
  expect(sum, JSON.stringify(worker)).toBeLessThanOrEqual(most * REPEATS);
  expect(worker.DB ?? 0).toBeLessThanOrEqual(STATEMENTS_MAX * REPEATS);
  expect(worker.network ?? 0).toBe(0);
  expect(objects).toBeLessThanOrEqual(OBJECT_CALLS_MAX * REPEATS);
});

it('the Worker counts its calls', async () => {
  await calls();
  await (await chat({})).text();
  expect((await calls()).worker.TUNNEL).toBe(1);
});
