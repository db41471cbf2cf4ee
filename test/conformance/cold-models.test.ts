/** Models that an autoscaler starts on demand: what the request gets, and what the autoscaler learns. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { EXCHANGE_MAX_BYTES } from '../../shared/factory/factory-exchange.ts';
import { startAgent } from '../support/agent.ts';
import { type Engine, startEngine } from '../support/engine.ts';
import { coldModel, MockFactory } from '../support/factory.ts';
import { Gateway } from '../support/gateway.ts';
import { promise } from '../support/patience.ts';
import { atEnd, endAll, eventually, type Managed } from '../support/processes.ts';
import { chatBody, envelopeOf } from '../support/test-cluster.ts';

const tokenSchema = z.object({ id: z.string(), token: z.string() });

let gateway: Gateway;
let key: string;
let joinToken: string;

beforeAll(async () => {
  gateway = await Gateway.start();
  [key, joinToken] = await Promise.all([gateway.createKey(), gateway.createJoinToken()]);
});
afterAll(endAll);

async function factoryToken(name = 'test'): Promise<z.infer<typeof tokenSchema>> {
  return tokenSchema.parse(await gateway.admin('POST', 'factory-tokens', { provider: 'lab', name }));
}

async function openFactory(name: string, models: Parameters<typeof coldModel>[]): Promise<MockFactory> {
  const { token } = await factoryToken(name);
  const options = { url: gateway.url, token, name, models: models.map((one) => coldModel(...one)) };
  const factory = await new MockFactory(options).open();
  atEnd(() => factory.close());
  return factory;
}

function ask(model: string, headers: Record<string, string> = {}, init: RequestInit & { stream?: boolean } = {}) {
  const { stream = false, ...more } = init;
  return fetch(`${gateway.url}/v1/chat/completions`, {
    method: 'POST',
    body: JSON.stringify(chatBody({ tokens: 2 }, { model, ...(stream && { stream }) })),
    ...more,
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
  });
}

async function serve(model: string, args: string[] = []): Promise<{ engine: Engine; agent: Managed }> {
  const engine = await startEngine({ models: [model] });
  atEnd(() => engine.close());
  const agent = await startAgent({ gateways: [gateway.url], token: joinToken, engineUrl: engine.url, args });
  return { engine, agent };
}

async function list(query: string): Promise<Record<string, unknown>[]> {
  const response = await fetch(`${gateway.url}/v1/models${query}`, { headers: { authorization: `Bearer ${key}` } });
  return z.object({ data: z.array(z.record(z.string(), z.unknown())) }).parse(await response.json()).data;
}

it('a unary request waits for a cold model, and its factory hears of it at once', async () => {
  const factory = await openFactory('unary', [['cold/unary']]);
  const before = performance.now();
  const asked = ask('cold/unary', { 'x-otela-wait': '60' });
  await factory.heard('the request', () => (factory.demandFor('cold/unary')?.waiting ?? 0) === 1);
  const heardMs = performance.now() - before;
  const { engine } = await serve('cold/unary');
  const response = await asked;
  expect(response.status, await response.text()).toBe(200);
  expect(engine.requests).toHaveLength(1);
  expect(heardMs).toBeLessThan(Math.min(promise(5_000), 20_000)); // without news an exchange waits for 20 s
  await factory.heard('a ready replica', () => factory.demandFor('cold/unary')?.ready_replicas === 1);
  await factory.heard('nobody who waits', () => factory.demandFor('cold/unary')?.waiting === 0);
});

it('a stream that waits is told what happens, every 15 s', async () => {
  const factory = await openFactory('stream', [['cold/stream']]);
  const pending = coldModel('cold/stream', { state: 'queued', pending: 1, estimate_ms: 20_000 });
  const cluster = { id: 'alps', launcher: 'slurm', reachable: true, pending: 1, running: 0 };
  const job = { cluster: 'alps', id: '1', model: 'cold/stream', state: 'pending' as const, gpus: 1, since_ms: 0 };
  factory.report = { models: [pending], clusters: [cluster], jobs: [job] };
  const response = await ask('cold/stream', { 'x-otela-wait': '60' }, { stream: true });
  expect(response.status).toBe(200);
  const reader = (response.body ?? new ReadableStream<Uint8Array>()).pipeThrough(new TextDecoderStream()).getReader();
  expect((await reader.read()).value).toContain(': otela queued in Slurm\n\n');
  factory.report = { models: [coldModel('cold/stream', { state: 'loading', running: 1, progress: 0.4 })] };
  await factory.tell();
  expect((await reader.read()).value).toContain(': otela loading 40%\n\n');
  await serve('cold/stream');
  let rest = '';
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) rest += piece.value;
  expect(rest).toContain('data: [DONE]');
});

it('who may not wait is told how long it takes, and the model is started all the same', async () => {
  const factory = await openFactory('refusal', [['cold/refused', { estimate_ms: 240_000 }]]);
  const refused = await ask('cold/refused');
  expect(refused.status).toBe(503);
  expect(refused.headers.get('retry-after')).toBe('60'); // SDKs ignore a longer one
  const { code, message } = await envelopeOf(refused);
  expect(code).toBe('model_starting');
  expect(message).toContain('4 min');
  await factory.heard('the request', () => (factory.demandFor('cold/refused')?.asked_ms_ago ?? 60_000) < 10_000);
  // A wait that is shorter than the estimate counts as no wait.
  expect((await ask('cold/refused', { 'x-otela-wait': '60' })).status).toBe(503);
  const wrong = await ask('cold/refused', { 'x-otela-wait': '7200' });
  expect([wrong.status, (await envelopeOf(wrong)).param]).toEqual([400, 'x-otela-wait']);
});

it('a wait that ends without the model is told as a start that goes on', async () => {
  await openFactory('late', [['cold/late']]);
  const late = await ask('cold/late', { 'x-otela-wait': '1' });
  expect([late.status, (await envelopeOf(late)).code]).toEqual([503, 'model_starting']);
});

it('a key, or a model, has a wait of its own', async () => {
  const factory = await openFactory('defaults', [['cold/key'], ['cold/model']]);
  const patient = await gateway.createKey('patient', { start_wait_ms: 60_000 });
  await gateway.admin('PUT', 'models/cold/model', { start_wait_ms: 60_000 });
  const byKey = ask('cold/key', { authorization: `Bearer ${patient}` });
  await factory.heard('the key', () => factory.demandFor('cold/key')?.waiting === 1);
  await eventually('the model settings', 10_000, async () => {
    const leaving = new AbortController();
    const asked = ask('cold/model', {}, { signal: leaving.signal }).then(
      ({ status }) => status,
      () => 0,
    );
    const waited = await Promise.race([
      asked,
      factory.heard('it', () => factory.demandFor('cold/model')?.waiting === 1),
    ]);
    leaving.abort();
    return waited === undefined ? true : undefined;
  });
  await serve('cold/key');
  expect((await byKey).status).toBe(200);
});

it('a client that leaves is wanted for no more', async () => {
  const factory = await openFactory('leaver', [['cold/left']]);
  const leaving = new AbortController();
  const asked = ask('cold/left', { 'x-otela-wait': '60' }, { signal: leaving.signal }).catch(() => 'left');
  await factory.heard('the request', () => factory.demandFor('cold/left')?.waiting === 1);
  leaving.abort();
  expect(await asked).toBe('left');
  await factory.heard('that it left', () => factory.demandFor('cold/left')?.waiting === 0, 15_000);
});

it('a key that may not start a model is refused while it is cold, and may wait for it once another one started it', async () => {
  const wake = { projects: [], keys: ['key_of_others'] };
  const factory = await openFactory('wake', [['cold/theirs', { wake }]]);
  const refused = await ask('cold/theirs', { 'x-otela-wait': '60' });
  expect(refused.status).toBe(403);
  expect((await envelopeOf(refused)).code).toBe('model_not_allowed');
  expect(factory.demandFor('cold/theirs')).toBeUndefined();
  factory.report = { models: [coldModel('cold/theirs', { state: 'starting', running: 1, wake })] };
  await factory.tell();
  await new Promise((resolve) => setTimeout(resolve, 1_100)); // an isolate caches it for a second
  const late = await ask('cold/theirs', { 'x-otela-wait': '1' });
  expect((await envelopeOf(late)).code).toBe('model_starting');
});

it('a model that failed too often is not waited for', async () => {
  await openFactory('rest', [['cold/broken', { state: 'resting', reason: 'CUDA out of memory on nid007' }]]);
  const refused = await ask('cold/broken', { 'x-otela-wait': '60' });
  const { code, message } = await envelopeOf(refused);
  expect([refused.status, code]).toEqual([503, 'no_capacity']);
  expect(message).not.toContain('nid007');
});

it('cold models are in the whole list with their state and estimate, and in no other', async () => {
  await openFactory('lists', [['cold/listed', { state: 'loading', running: 1, estimate_ms: 90_000, progress: 0.25 }]]);
  const found = await eventually('the model', 5_000, async () =>
    (await list('?state=all')).find(({ id }) => id === 'cold/listed'),
  );
  expect(found).toMatchObject({ state: 'loading', owned_by: 'lab', loaded_percent: 25, may_start: true });
  expect(found.ready_in_ms).toBeLessThanOrEqual(90_000);
  expect((await list('')).some(({ id }) => id === 'cold/listed')).toBe(false);
  const one = await fetch(`${gateway.url}/v1/models/cold/listed`, { headers: { authorization: `Bearer ${key}` } });
  expect(await one.json()).toMatchObject({ id: 'cold/listed', state: 'loading' });
});

it('a request that trusts other providers wakes none of this one’s models', async () => {
  const factory = await openFactory('trust', [['cold/trust']]);
  const refused = await ask('cold/trust', { 'x-otela-wait': '5', 'x-otela-trusted-providers': 'lab' });
  expect((await envelopeOf(refused)).code).toBe('model_starting');
  await factory.heard('the first to be over', () => factory.demandFor('cold/trust')?.waiting === 0);
  await gateway.admin('POST', 'providers', { id: 'other', name: 'Other' });
  const strange = await eventually('the new provider', 10_000, async () => {
    const response = await ask('cold/trust', { 'x-otela-wait': '5', 'x-otela-trusted-providers': 'other' });
    return response.status === 400 ? undefined : response;
  });
  expect([strange.status, (await envelopeOf(strange)).code]).toEqual([404, 'model_not_found']);
  expect(factory.demandFor('cold/trust')?.waiting ?? 0).toBe(0);
});

it('a factory drains its own nodes, and nobody else’s', async () => {
  const factory = await openFactory('owner', [['own/drained'], ['own/kept']]);
  const own = await serve('own/drained', ['--label', 'factory=owner', '--label', 'context=0123456789ab']);
  await serve('own/kept', ['--label', 'factory=somebody']);
  const isReady = (model: string) => factory.nodes.some((node) => node.model === model && node.state === 'ready');
  await factory.heard('both nodes', () => isReady('own/drained') && isReady('own/kept'), 15_000);
  const sessionOf = (model: string) => factory.nodes.find((node) => node.model === model)?.session ?? '';
  const [drained, kept] = [sessionOf('own/drained'), sessionOf('own/kept')];
  expect(factory.nodes.find(({ session }) => session === drained)?.labels).toEqual({
    factory: 'owner',
    context: '0123456789ab',
  });
  factory.report = { ...factory.report, drain: [drained, kept].map((session) => ({ session, why: 'idle' })) };
  await factory.tell();
  expect(await own.agent.exited).toMatchObject({ code: 0 });
  await gateway.serving(1, 15_000, 'own/kept');
});

it('a lying factory is refused with the place of its fault, and takes nothing away from others', async () => {
  const { token } = await factoryToken('liar');
  const liar = new MockFactory({ url: gateway.url, token, name: 'liar', models: [] });
  const refused = async (body: unknown) => {
    const response = await liar.post(body);
    return [response.status, (await envelopeOf(response)).message] as const;
  };
  const models = [coldModel('lie', { estimate_ms: -1 })];
  expect(await refused(liar.whole({ models }))).toEqual([400, expect.stringContaining('models.0.estimate_ms')]);
  // One byte too many, so that the body is read to its end: otherwise wrangler dev's proxy resets the connection.
  expect((await refused('x'.repeat(EXCHANGE_MAX_BYTES + 1)))[0]).toBe(413);
  const tail = { cluster: 'c', id: '1', model: 'lie', state: 'failed' as const, gpus: 1, since_ms: 0 };
  const huge = liar.whole({ jobs: [{ ...tail, log_tail: 'x'.repeat(1_000_000) }] });
  expect(await refused(huge)).toEqual([400, expect.stringContaining('jobs.0.log_tail')]);
  expect((await refused('{"version":1'))[0]).toBe(400);
  expect((await list('?state=all')).some(({ id }) => id === 'lie')).toBe(false);
});

it('a token that is revoked while its exchange waits ends it, and its models are unknown at once', async () => {
  const { id, token } = await factoryToken('revoked');
  const factory = new MockFactory({ url: gateway.url, token, name: 'revoked', models: [coldModel('cold/revoked')] });
  const { revision } = await factory.tell();
  const waiting = factory.post(factory.whole({ wait_ms: 25_000, after: revision }));
  expect(await Promise.race([waiting, new Promise((resolve) => setTimeout(resolve, 500, 'waits'))])).toBe('waits');
  const before = performance.now();
  await gateway.admin('DELETE', `factory-tokens/${id}`);
  expect((await waiting).status).toBe(401);
  expect(performance.now() - before).toBeLessThan(Math.min(promise(10_000), 24_000)); // without the notice it would wait for 25 s
  await eventually('an unknown model', 5_000, async () =>
    (await ask('cold/revoked')).status === 404 ? true : undefined,
  );
});

it('a newer exchange of the same factory ends the older one', async () => {
  const { token } = await factoryToken('twice');
  const factory = new MockFactory({ url: gateway.url, token, name: 'twice', models: [coldModel('cold/twice')] });
  const { revision } = await factory.tell();
  const older = factory.post(factory.whole({ wait_ms: 25_000, after: revision }));
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  await factory.tell();
  expect((await older).status).toBe(409);
});

it('a factory token opens nothing else, and no other key exchanges', async () => {
  const { token } = await factoryToken('least');
  const as = (secret: string, path: string, method = 'GET') =>
    fetch(`${gateway.url}${path}`, { method, headers: { authorization: `Bearer ${secret}` } }).then(
      ({ status }) => status,
    );
  expect(await Promise.all(['/v1/models', '/admin/factory', '/admin/keys'].map((path) => as(token, path)))).toEqual([
    401, 401, 401,
  ]);
  expect(await as(gateway.adminKey, '/factory/exchange', 'POST')).toBe(401);
  expect(await as(joinToken, '/factory/exchange', 'POST')).toBe(401);
});

it('a thousand requests of one key for a cold model: half of its places wait, the others are refused at once, and another key still may', async () => {
  const factory = await openFactory('crowd', [['cold/crowd']]);
  const leaving = new AbortController();
  const wait = { 'x-otela-wait': '120' };
  const codes: number[] = [];
  const crowd = Array.from({ length: 1_000 }, () =>
    ask('cold/crowd', wait, { signal: leaving.signal }).then(
      ({ status }) => codes.push(status),
      () => codes.push(0),
    ),
  );
  await factory.heard('half of them', () => (factory.demandFor('cold/crowd')?.waiting ?? 0) >= 490, 30_000);
  const other = ask('cold/crowd', { ...wait, authorization: `Bearer ${await gateway.createKey('other')}` });
  await eventually('refusals', 20_000, async () => (codes.length >= 495 ? true : undefined));
  expect(new Set(codes)).toEqual(new Set([429]));
  await serve('cold/crowd');
  expect((await other).status).toBe(200);
  leaving.abort();
  await Promise.all(crowd);
  expect(codes.filter((code) => code === 200).length).toBeGreaterThan(0);
  await factory.heard('nobody', () => factory.demandFor('cold/crowd')?.waiting === 0, 20_000);
});

it('a gateway that restarts still knows which models are cold', async () => {
  await openFactory('restart', [['cold/restart']]);
  expect((await ask('cold/restart')).status).toBe(503);
  await gateway.stop();
  await gateway.restart();
  expect((await ask('cold/restart')).status).toBe(503);
});

it('a batch for a cold model is taken, and its lines are told to the factory', async () => {
  const factory = await openFactory('batches', [['cold/batch']]);
  const line = (n: number) => ({
    custom_id: `l${n}`,
    method: 'POST',
    url: '/v1/chat/completions',
    body: chatBody({ tokens: 1 }, { model: 'cold/batch' }),
  });
  const form = new FormData();
  form.set('purpose', 'batch');
  form.set('file', new Blob([Array.from({ length: 5 }, (_, n) => JSON.stringify(line(n))).join('\n')]), 'in.jsonl');
  const headers = { authorization: `Bearer ${key}` };
  const file = await fetch(`${gateway.url}/v1/files`, { method: 'POST', headers, body: form });
  const { id } = z.object({ id: z.string() }).parse(await file.json());
  const made = await fetch(`${gateway.url}/v1/batches`, {
    method: 'POST',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify({ input_file_id: id, endpoint: '/v1/chat/completions', completion_window: '24h' }),
  });
  const batch = z.object({ id: z.string() }).parse(await made.json());
  await factory.heard('the lines', () => factory.demandFor('cold/batch')?.batch?.lines === 5, 15_000);
  expect(factory.demandFor('cold/batch')?.batch?.deadline_ms).toBeGreaterThan(80_000_000);
  await serve('cold/batch');
  await eventually('the end of the batch', 30_000, async () => {
    const response = await fetch(`${gateway.url}/v1/batches/${batch.id}`, { headers });
    const { status } = z.object({ status: z.string() }).parse(await response.json());
    return status === 'completed' ? true : undefined;
  });
});
