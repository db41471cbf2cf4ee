/** Batches while nodes, engines and the gateway fail: every line is answered exactly once. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import { afterEach, describe, expect, it } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { startEngine } from '../../support/engine.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../../support/processes.ts';
import { MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

afterEach(endAll);

const ENDPOINT = '/v1/chat/completions';
const OVER = ['completed', 'failed', 'expired', 'cancelled'];
const LONG_MS = 30_000;

/** Engines with few slots, so that a batch lasts long enough for the test to act midway. */
const FEW_SLOTS = { agentArgs: ['--max-running', '16'] };
const clientOf = ({ base, key }: TestCluster) => new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 });
const line = (id: string, standIn: object) =>
  JSON.stringify({
    custom_id: id,
    method: 'POST',
    url: ENDPOINT,
    body: { model: MODEL, messages: [{ role: 'user', content: id }], stand_in: { tokens: 2, ...standIn } },
  });

async function begin(client: OpenAI, lines: readonly string[]): Promise<string> {
  const file = await client.files.create({
    file: await toFile(Buffer.from(lines.join('\n')), 'in.jsonl'),
    purpose: 'batch',
  });
  return (await client.batches.create({ input_file_id: file.id, endpoint: ENDPOINT, completion_window: '24h' })).id;
}
const done = (client: OpenAI, id: string, least: number) =>
  eventually(`${least} lines done`, LONG_MS, async () => {
    const batch = await client.batches.retrieve(id);
    return (batch.request_counts?.completed ?? 0) >= least ? batch : undefined;
  });
const ended = (client: OpenAI, id: string) =>
  eventually('the batch has ended', LONG_MS, async () => {
    const batch = await client.batches.retrieve(id);
    return OVER.includes(batch.status) ? batch : undefined;
  });
async function idsOf(client: OpenAI, file: string | null | undefined): Promise<string[]> {
  if (file === null || file === undefined) return [];
  const text = await (await client.files.content(file)).text();
  return text
    .trimEnd()
    .split('\n')
    .map((one) => String(JSON.parse(one).custom_id));
}
/**
 * The first `free` lines run and the others wait at their engine until `open`, so that no batch ends before the test is
 * done with it.
 */
async function gated(count: number, free: number): Promise<{ lines: string[]; open(): Promise<void> }> {
  const gate = join(await temporaryDirectory('otela-gate'), 'open');
  return {
    lines: named(count).map((one, n) => line(one, n < free ? { delayMs: 30 } : { gate })),
    open: () => writeFile(gate, ''),
  };
}
const named = (count: number) => Array.from({ length: count }, (_, i) => `line-${i}`);

describe('a batch', () => {
  it('loses no line and answers none twice when one of two agents is killed', async () => {
    const cluster = await openTestCluster({ nodes: 2 });
    const client = clientOf(cluster);
    const ids = named(400);
    const id = await begin(
      client,
      ids.map((one) => line(one, { delayMs: 40 })),
    );
    await done(client, id, 40);
    cluster.agents[0]?.signal('SIGKILL');
    const batch = await ended(client, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 400, completed: 400, failed: 0 } });
    expect((await idsOf(client, batch.output_file_id)).sort()).toEqual([...ids].sort());
    const run = cluster.engines.flatMap((engine) => engine.requests).filter(({ url }) => url === ENDPOINT).length;
    // Only lines that were in flight at the killed agent, or that it had not committed, ran twice.
    expect(run).toBeLessThan(400 + 200);
  });

  it('goes on after kill -9 of the gateway, with what was committed', async () => {
    const cluster = await openTestCluster();
    const client = clientOf(cluster);
    const ids = named(300);
    const id = await begin(
      client,
      ids.map((one) => line(one, { delayMs: 40 })),
    );
    const before = (await done(client, id, 60)).request_counts?.completed ?? 0;
    await cluster.gateway.kill9();
    await cluster.gateway.restart();
    const after = await eventually('the gateway answers', LONG_MS, () => client.batches.retrieve(id));
    expect(after.request_counts?.completed).toBeGreaterThanOrEqual(before);
    const batch = await ended(client, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 300, completed: 300, failed: 0 } });
    expect((await idsOf(client, batch.output_file_id)).sort()).toEqual([...ids].sort());
  });

  it('gives a line that its engine fails three times an error, and all others their answer', async () => {
    const cluster = await openTestCluster();
    const client = clientOf(cluster);
    const id = await begin(client, [line('good', {}), line('bad', { status: 500 }), line('fine', {})]);
    const batch = await ended(client, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 3, completed: 2, failed: 1 } });
    const text = await (await client.files.content(batch.error_file_id ?? '')).text();
    expect(JSON.parse(text)).toMatchObject({ custom_id: 'bad', response: null, error: { code: 'engine_failed' } });
    expect(cluster.engine.requests.filter(({ url }) => url === ENDPOINT)).toHaveLength(2 + 3);
  });

  it('waits while no engine is there, and goes on when one comes', async () => {
    const cluster = await openTestCluster(FEW_SLOTS);
    const client = clientOf(cluster);
    const { lines, open } = await gated(100, 20);
    const id = await begin(client, lines);
    await done(client, id, 10);
    cluster.agents[0]?.signal('SIGKILL');
    await cluster.gateway.serving(0);
    const left = await client.batches.retrieve(id);
    expect(left.status).toBe('in_progress');
    await open();
    const engine = await startEngine({ models: [MODEL] });
    atEnd(() => engine.close());
    await startAgent({ gateways: [cluster.gateway.url], token: cluster.token, engineUrl: engine.url });
    const batch = await ended(client, id);
    expect(batch.request_counts).toEqual({ total: 100, completed: 100, failed: 0 });
  });

  it('is not run for a key whose lists leave no node', async () => {
    const cluster = await openTestCluster();
    const key = await cluster.gateway.createKey('elsewhere', { trusted_providers: ['elsewhere'] });
    const client = new OpenAI({ baseURL: cluster.base, apiKey: key, maxRetries: 0 });
    const id = await begin(client, [line('a', {})]);
    await begin(clientOf(cluster), [line('other', {})]).then((other) => ended(clientOf(cluster), other));
    expect(await client.batches.retrieve(id)).toMatchObject({
      status: 'in_progress',
      request_counts: { completed: 0 },
    });
    expect(cluster.engine.requests.filter(({ url }) => url === ENDPOINT)).toHaveLength(1);
  });

  it('ends when its key is revoked: no line begins any more', async () => {
    const cluster = await openTestCluster(FEW_SLOTS);
    const client = clientOf(cluster);
    const { lines } = await gated(1_500, 30);
    const id = await begin(client, lines);
    await done(client, id, 10);
    const keys = (await cluster.gateway.admin('GET', 'keys')) as { data: { id: string; prefix: string }[] };
    const mine = keys.data.find(({ prefix }) => cluster.key.startsWith(prefix));
    await cluster.gateway.admin('DELETE', `keys/${mine?.id}`);
    const operator = new OpenAI({ baseURL: cluster.base, apiKey: cluster.gateway.adminKey, maxRetries: 0 });
    expect((await ended(operator, id)).status).toBe('cancelled');
    await eventually('no line runs any more', LONG_MS, () => (cluster.engine.running() === 0 ? true : undefined));
    // Only the lines that ran when the batch ended; the window is 16 lines.
    expect(cluster.engine.requests.filter(({ url }) => url === ENDPOINT).length).toBeLessThan(30 + 2 * 16);
  });

  it('goes on when its key is rotated, and ends when the key that took its place is revoked', async () => {
    const cluster = await openTestCluster(FEW_SLOTS);
    const keys = (await cluster.gateway.admin('GET', 'keys')) as { data: { id: string; prefix: string }[] };
    const old = keys.data.find(({ prefix }) => cluster.key.startsWith(prefix))?.id;
    const client = clientOf(cluster);
    const { lines } = await gated(6_000, 5_900);
    const id = await begin(client, lines);
    await done(client, id, 10);
    const next = (await cluster.gateway.admin('POST', `keys/${old}/rotate`, { overlap_seconds: 0 })) as { id: string };
    const operator = new OpenAI({ baseURL: cluster.base, apiKey: cluster.gateway.adminKey, maxRetries: 0 });
    const at = async () => (await operator.batches.retrieve(id)).request_counts?.completed ?? 0;
    // After the account was read twice more, lines are still started.
    const [rotatedAt, before] = [Date.now(), await at()];
    await eventually('lines long after the rotation', LONG_MS, async () =>
      Date.now() - rotatedAt > 12_000 && (await at()) > before + 100 ? true : undefined,
    );
    expect((await operator.batches.retrieve(id)).status).toBe('in_progress');
    await cluster.gateway.admin('DELETE', `keys/${next.id}`);
    const over = await ended(operator, id);
    expect(over.status).toBe('cancelled');
    expect(over.request_counts?.completed).toBeLessThan(6_000);
  });

  it('pauses and goes on', async () => {
    const cluster = await openTestCluster(FEW_SLOTS);
    const client = clientOf(cluster);
    const { lines, open } = await gated(300, 40);
    const id = await begin(client, lines);
    await done(client, id, 20);
    const paused = await cluster.ask(`/v1/batches/${id}/pause`, {});
    expect(await paused.json()).toMatchObject({ status: 'in_progress', x_otela: { paused: true } });
    await open();
    await cluster.ask(`/v1/batches/${id}/resume`, {});
    expect((await ended(client, id)).request_counts?.completed).toBe(300);
  });

  it('belongs to its project: another key does not find it, nor its files', async () => {
    const cluster = await openTestCluster();
    const client = clientOf(cluster);
    const id = await begin(client, [line('a', {})]);
    const batch = await ended(client, id);
    const other = new OpenAI({ baseURL: cluster.base, apiKey: await cluster.gateway.createKey(), maxRetries: 0 });
    for (const look of [
      () => other.batches.retrieve(id),
      () => other.batches.cancel(id),
      () => other.files.retrieve(batch.output_file_id ?? ''),
      () => other.files.content(batch.input_file_id),
      () => other.files.delete(batch.input_file_id),
    ])
      expect(await look().catch((error: { status: number }) => error.status)).toBe(404);
    expect((await other.batches.list()).data).toEqual([]);
  });
});

describe('interactive requests beside a batch', () => {
  it('never wait behind its lines: the reserve takes them, and the window gives way', async () => {
    const cluster = await openTestCluster({ engine: { slots: 8 }, agentArgs: ['--max-running', '8'] });
    const client = clientOf(cluster);
    const { lines, open } = await gated(3_000, 50);
    const id = await begin(client, lines);
    await done(client, id, 50);
    await eventually('lines fill what they may', LONG_MS, () => (cluster.engine.running() >= 6 ? true : undefined));
    // No line ends from now on: a request that waited for one would wait forever.
    for (let i = 0; i < 20; i++) {
      const answer = await cluster.ask('/v1/chat/completions', { model: MODEL, messages: [], stand_in: { tokens: 1 } });
      expect(answer.status).toBe(200);
      await answer.text();
    }
    expect((await client.batches.retrieve(id)).status).toBe('in_progress');
    await client.batches.cancel(id);
    await open();
  });
});

describe('rights that change midway', () => {
  it('a join token that is revoked takes its node out of a batch: the others answer each line', async () => {
    const cluster = await openTestCluster({ nodes: 1 });
    const client = clientOf(cluster);
    const made = (await cluster.gateway.admin('POST', 'join-tokens', { provider: 'other' })) as {
      id: string;
      token: string;
    };
    const engine = await startEngine({ models: [MODEL] });
    atEnd(() => engine.close());
    await startAgent({ gateways: [cluster.gateway.url], token: made.token, engineUrl: engine.url });
    await cluster.gateway.serving(2);
    const ids = named(800);
    const id = await begin(
      client,
      ids.map((one) => line(one, { delayMs: 60 })),
    );
    const asked = () => engine.requests.filter(({ url }) => url === ENDPOINT).length;
    await eventually('the second node has lines', LONG_MS, async () => (asked() > 10 ? true : undefined));
    await cluster.gateway.admin('DELETE', `join-tokens/${made.id}`);
    const batch = await ended(client, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 800, completed: 800, failed: 0 } });
    expect((await idsOf(client, batch.output_file_id)).sort()).toEqual([...ids].sort());
    expect(asked()).toBeLessThan(800);
  });

  it('a key that trusts its node no longer leases it no more lines, and goes on when it does again', async () => {
    const cluster = await openTestCluster(FEW_SLOTS);
    const client = clientOf(cluster);
    const keys = (await cluster.gateway.admin('GET', 'keys')) as { data: { id: string; prefix: string }[] };
    const mine = keys.data.find(({ prefix }) => cluster.key.startsWith(prefix))?.id;
    const { lines } = await gated(4_100, 4_000);
    const id = await begin(client, lines);
    await done(client, id, 20);
    await cluster.gateway.admin('PATCH', `keys/${mine}`, { trusted_providers: ['elsewhere'] });
    const asked = () => cluster.engine.requests.filter(({ url }) => url === ENDPOINT).length;
    let seen = -1;
    await eventually('no line runs any more', LONG_MS, async () => {
      const before = seen;
      seen = asked();
      await new Promise((resolve) => setTimeout(resolve, 2_000));
      return before === seen && cluster.engine.running() === 0 ? true : undefined;
    });
    expect(seen).toBeLessThan(4_000);
    expect((await client.batches.retrieve(id)).status).toBe('in_progress');
    await cluster.gateway.admin('PATCH', `keys/${mine}`, { trusted_providers: null });
    await eventually('lines run again', LONG_MS, async () => (asked() > seen ? true : undefined));
  });
});
