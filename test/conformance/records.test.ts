/** What the record of a request contains: how its response was sampled, how long it waited, and that it was refused. */
import { createHash } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { endAll, eventually } from '../support/processes.ts';
import { chatBody, MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';

let cluster: TestCluster;
let project: string;
const from = new Date(Date.now() - 60_000).toISOString();

beforeAll(async () => {
  cluster = await openTestCluster({ agentArgs: ['--max-running', '1'] });
  // A request that would have to wait is refused immediately here.
  await cluster.gateway.admin('PATCH', 'settings', { queue: { unary_ms: 0 } });
  project = made.parse(await cluster.gateway.admin('POST', 'projects', { name: 'p', trace: true })).id;
});
afterAll(endAll);

const made = z.looseObject({ id: z.string() });
const withKey = z.looseObject({ id: z.string(), key: z.string() });
const makeKey = async (more: object = {}) =>
  withKey.parse(await cluster.gateway.admin('POST', 'keys', { name: 'k', project_id: project, ...more }));
const ask = async (
  key: string,
  more: object = {},
  path = '/v1/chat/completions',
  headers: Record<string, string> = {},
) => {
  const body = chatBody({ tokens: 2 }, more);
  const response = await cluster.ask(path, body, { headers: { authorization: `Bearer ${key}`, ...headers } });
  await response.text();
  return response.status;
};

const lineSchema = z.looseObject({
  model: z.string(),
  key: z.string(),
  endpoint: z.string(),
  status: z.number(),
  attempt: z.number(),
  error: z.string().nullable(),
  requests: z.number(),
  queue_ms: z.number(),
  temperature: z.number().nullable(),
  max_tokens: z.number().nullable(),
  top_p: z.number().nullable(),
  n: z.number().nullable(),
  prefix_buckets: z.array(z.string()).nullable(),
});
type Line = z.infer<typeof lineSchema>;

async function trace(): Promise<Line[]> {
  const to = new Date(Date.now() + 60_000).toISOString();
  const response = await fetch(`${cluster.gateway.url}/admin/trace?${new URLSearchParams({ from, to })}`, {
    headers: { authorization: `Bearer ${cluster.gateway.adminKey}` },
  });
  const text = await response.text();
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => lineSchema.parse(JSON.parse(line)));
}

/** New lines of the trace since `before`, after `count` more requests. */
const fresh = (before: readonly Line[], count: number) =>
  eventually(`${count} more requests on record`, 15_000, async () => {
    const lines = (await trace()).slice(before.length);
    return lines.reduce((sum, { requests }) => sum + requests, 0) >= count ? lines : undefined;
  });

it('sampling parameters are on record, by one name whatever the endpoint calls them, and nothing else of the body', async () => {
  const { key } = await makeKey();
  const before = await trace();
  const askedAt = Date.now();
  await ask(key, { temperature: 0.25, top_p: 0.9, max_completion_tokens: 17, n: 1, stop: ['secret-word'] });
  await ask(key, { temperature: null, top_p: 'high', max_tokens: 2 });
  const lines = await fresh(before, 2);
  expect(lines[0]).toMatchObject({ temperature: 0.25, top_p: 0.9, max_tokens: 17, n: 1, attempt: 1, error: null });
  expect(lines[1]).toMatchObject({ temperature: null, top_p: null, max_tokens: 2, n: null });
  expect(JSON.stringify(lines)).not.toContain('secret-word');
  for (const { queue_ms } of lines) expect(queue_ms).toBeLessThanOrEqual(Date.now() - askedAt);
});

it('what a request waited for a free node is on record apart from its own time', async () => {
  await cluster.gateway.admin('PATCH', 'settings', { queue: null });
  const { key } = await makeKey();
  const before = await trace();
  const known = cluster.engine.requests.length;
  const slow = ask(key, { stand_in: { tokens: 1, delayMs: 2_500 } });
  await eventually('the node to be busy', 5_000, () => (cluster.engine.requests.length > known ? true : undefined));
  expect(await Promise.all([slow, ask(key)])).toEqual([200, 200]);
  const [first, second] = (await fresh(before, 2)).sort((a, b) => a.queue_ms - b.queue_ms);
  await cluster.gateway.admin('PATCH', 'settings', { queue: { unary_ms: 0 } });
  expect(second?.queue_ms).toBeGreaterThan(700);
  expect(first?.queue_ms).toBeLessThan((second?.queue_ms ?? 0) / 2);
});

it('a request that no engine saw is on record with the reason; those of a stranger and of who opts out are not', async () => {
  const { key, id } = await makeKey({
    models: [MODEL, 'nobody/serves-this'],
    endpoints: ['chat/completions'],
    no_track: true,
  });
  const before = await trace();
  expect(await ask(key, { model: 'not/allowed' })).toBe(403);
  expect(await ask(key, { model: 'nobody/serves-this' })).toBe(404);
  expect(await ask(key, {}, '/v1/embeddings')).toBe(403);
  expect(await ask(key, { model: 7 })).toBe(400);
  expect(await ask(key, { model: 'not/allowed' }, undefined, { 'x-otela-no-track': '1' })).toBe(403);
  expect(await ask('sk-otela-stranger')).toBe(401);
  const lines = await fresh(before, 4);
  expect(lines.map(({ status, error, model, attempt }) => [status, error, model, attempt]).sort()).toEqual([
    [400, 'invalid_request', '', 0],
    [403, 'model_not_allowed', 'not/allowed', 0],
    [403, 'permission_denied', '', 0],
    [404, 'model_not_found', 'nobody/serves-this', 0],
  ]);
  const totals = z.object({ data: z.array(z.object({ requests: z.number(), failed: z.number() })) });
  await eventually('the totals', 15_000, async () => {
    const { data } = totals.parse(await cluster.gateway.admin('GET', `usage?group_by=key&key=${id}`));
    return data[0]?.requests === 4 && data[0].failed === 4 ? true : undefined;
  });
});

it('a flood at a closed door is few rows that say how many', async () => {
  const { key } = await makeKey({ limits: { requests_per_minute: 1 } });
  const before = await trace();
  expect(await ask(key)).toBe(200);
  const refused = await Promise.all(Array.from({ length: 60 }, () => ask(key)));
  expect(refused.every((status) => status === 429)).toBe(true);
  const lines = (await fresh(before, 61)).filter(({ status }) => status === 429);
  expect(lines.reduce((sum, { requests }) => sum + requests, 0)).toBe(60);
  expect(lines.length).toBeLessThan(20);
});

it('what nobody serves is in the workload as unserved, and counts for no length', async () => {
  await cluster.gateway.admin('PUT', 'models/wanted%2Fmodel', { private: true });
  const { key } = await makeKey();
  await eventually('the model to be known', 10_000, async () =>
    (await ask(key, { model: 'wanted/model' })) === 503 ? true : undefined,
  );
  const rows = z.object({
    data: z.array(z.looseObject({ model: z.string(), requests: z.number(), unserved: z.number() })),
  });
  const wanted = await eventually('the workload', 15_000, async () => {
    const { data } = rows.parse(await cluster.gateway.admin('GET', 'workload?window=10m'));
    return data.find(({ model }) => model === 'wanted/model');
  });
  expect(wanted).toMatchObject({ requests: 0, input: { mean: 0, p95: 0 } });
  expect(wanted.unserved).toBeGreaterThan(0);
  // Its name is private, so the trace has a hash of it.
  const lines = (await trace()).filter(({ status }) => status === 503);
  expect(lines.length).toBeGreaterThan(0);
  for (const { model } of lines) expect(model).toMatch(/^[0-9a-f]{16}$/);
});

it('who leaves while it waits for a node is on record: 499, how long it waited, and nothing used', async () => {
  /** How long each request stays in the queue after it was seen there. */
  const WAITS_MS = 700;
  await cluster.gateway.admin('PUT', 'models/awaited', {});
  await cluster.gateway.admin('PATCH', 'settings', { queue: { unary_ms: 30_000, stream_ms: 30_000 } });
  const { id, key } = await makeKey();
  const waits = async (more: object, headers: Record<string, string> = {}) => {
    const client = new AbortController();
    const init = { headers: { authorization: `Bearer ${key}`, ...headers }, signal: client.signal };
    const asked = cluster.ask('/v1/chat/completions', chatBody({}, { model: 'awaited', ...more }), init);
    const left = asked.then(
      () => 'answered',
      () => 'left',
    );
    await cluster.gateway.queued(1, 'awaited');
    await new Promise((resolve) => setTimeout(resolve, WAITS_MS));
    client.abort();
    expect(await left).toBe('left');
  };
  // Not of this project, so not in its trace.
  await eventually('waiting is allowed', 10_000, async () => {
    const client = new AbortController();
    const init = { signal: client.signal };
    const over = cluster.ask('/v1/chat/completions', chatBody({}, { model: 'awaited' }), init).then(
      () => undefined,
      () => undefined,
    );
    const waiting = cluster.gateway.queued(1, 'awaited', 5_000).then(
      () => true as const,
      () => undefined,
    );
    const waits = await Promise.race([over, waiting]);
    client.abort();
    await over;
    return waits;
  });
  await cluster.gateway.queued(0, 'awaited');
  const before = await trace();
  const askedAt = Date.now();
  await waits({});
  await waits({ stream: true });
  const tookMs = Date.now() - askedAt;
  const lines = await fresh(before, 2);
  for (const line of lines) {
    expect(line).toMatchObject({ status: 499, error: 'client_left', attempt: 0, model: 'awaited', output_tokens: 0 });
    expect(line.queue_ms).toBeGreaterThan(WAITS_MS - 200);
    expect(line.queue_ms).toBeLessThanOrEqual(tookMs);
  }
  const sums = z.object({
    data: z.array(z.looseObject({ requests: z.number(), aborted: z.number(), prompt_tokens: z.number() })),
  });
  await eventually('the totals', 15_000, async () => {
    const { data } = sums.parse(await cluster.gateway.admin('GET', `usage?group_by=key&key=${id}`));
    return (data[0]?.aborted ?? 0) >= 2 && data[0]?.prompt_tokens === 0 ? true : undefined;
  });
  await cluster.gateway.admin('PATCH', 'settings', { queue: { unary_ms: 0, stream_ms: 600_000 } });
});

it('prompts that begin alike have the same first buckets, where the project wants them; the digests themselves are nowhere', async () => {
  const { id } = made.parse(
    await cluster.gateway.admin('POST', 'projects', { name: 'b', trace: true, trace_prefixes: true }),
  );
  const { key } = await makeKey({ project_id: id });
  const plain = await makeKey();
  const before = await trace();
  // The mock engine makes each of these characters one token, by its code. No two of the four blocks are the same.
  const shared = Array.from({ length: 64 }, (_, n) => (n % 16 === n >> 4 ? '\n' : '<')).join('');
  const prompts = [`${shared}${'<'.repeat(40)}`, `${shared}${'\n'.repeat(40)}`, 'too short'];
  for (const prompt of prompts) await ask(key, { prompt, messages: undefined }, '/v1/completions');
  await ask(plain.key, { prompt: prompts[0], messages: undefined }, '/v1/completions');
  await ask(key, { messages: [{ role: 'user', content: shared }] });
  const lines = await eventually('the buckets', 10_000, async () => {
    const all = (await trace()).slice(before.length);
    return all.filter(({ prefix_buckets }) => prefix_buckets !== null).length === 4 && all.length === 5
      ? all
      : undefined;
  });
  const bucketsOf = (n: number) => lines[n]?.prefix_buckets ?? [];
  const [a, b, short] = [bucketsOf(0), bucketsOf(1), bucketsOf(2)];
  // Six full blocks of sixteen tokens; the first four are the same.
  expect([a.length, b.length, short.length]).toEqual([6, 6, 0]);
  expect(a.slice(0, 4)).toEqual(b.slice(0, 4));
  expect(a[4]).not.toBe(b[4]);
  expect(new Set(a).size).toBe(5); // the last two consist of the same letter
  expect(lines[3]?.prefix_buckets).toBeNull();
  expect(bucketsOf(4).length).toBeGreaterThan(0);
  const block = Uint32Array.from({ length: 16 }, (_, n) => shared.charCodeAt(n));
  const digest = createHash('sha256').update(new Uint8Array(block.buffer)).digest();
  expect(JSON.stringify(lines)).not.toContain(digest.toString('base64url').slice(0, 11));
  expect(JSON.stringify(lines)).not.toContain(digest.toString('hex').slice(0, 16));
});

it('a trace of the whole installation has keys without a project, but no exception and no request that declines', async () => {
  const [plain, excepted] = [await makeKey({ project_id: undefined }), await makeKey()];
  await cluster.gateway.admin('PATCH', 'settings', { trace: { all: true, except: { keys: [excepted.id] } } });
  const before = await trace();
  // A cached account of a key may be five seconds old.
  await eventually('the setting to hold', 20_000, async () => {
    await ask(plain.key);
    return (await trace()).length > before.length ? true : undefined;
  });
  const [declined, without, included] = [0.5, 0.625, 0.125];
  expect(await ask(plain.key, { temperature: declined }, undefined, { 'x-otela-no-trace': '1' })).toBe(200);
  expect(await ask(excepted.key, { temperature: without })).toBe(200);
  expect(await ask(plain.key, {}, undefined, { 'x-otela-no-trace': 'yes' })).toBe(400);
  expect(await ask(plain.key, { temperature: included })).toBe(200);
  const temperatures = async () => (await trace()).map(({ temperature }) => temperature);
  await eventually('the last request', 15_000, async () => (await temperatures()).includes(included) || undefined);
  const totals = z.object({ data: z.array(z.looseObject({ requests: z.number() })) });
  await eventually('both to be accounted all the same', 15_000, async () => {
    const usage = async (id: string) =>
      totals.parse(await cluster.gateway.admin('GET', `usage?group_by=key&key=${id}`)).data[0]?.requests ?? 0;
    return (await usage(excepted.id)) === 1 && (await usage(plain.id)) >= 4 ? true : undefined;
  });
  expect((await temperatures()).filter((one) => one === declined || one === without)).toEqual([]);
  await cluster.gateway.admin('PATCH', 'settings', { trace: null });
});
