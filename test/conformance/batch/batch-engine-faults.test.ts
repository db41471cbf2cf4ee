/** Batches with broken, slow or unreachable engines: a fault of one node does not affect the lines of the others. */
import { connect, createServer, type Server, type Socket } from 'node:net';
import OpenAI, { toFile } from 'openai';
import { afterEach, describe, expect, it } from 'vitest';
import { startAgent } from '../../support/agent.ts';
import { type Engine, startEngine } from '../../support/engine.ts';
import { atEnd, endAll, eventually } from '../../support/processes.ts';
import { MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

afterEach(endAll);

const ENDPOINT = '/v1/chat/completions';
const LONG_MS = 30_000;

const clientOf = ({ base, key }: TestCluster) => new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 });
const named = (count: number) => Array.from({ length: count }, (_, i) => `line-${i}`);

async function begin(client: OpenAI, ids: readonly string[]): Promise<string> {
  const lines = ids.map((id) =>
    JSON.stringify({
      custom_id: id,
      method: 'POST',
      url: ENDPOINT,
      body: { model: MODEL, messages: [{ role: 'user', content: id }], stand_in: { tokens: 2 } },
    }),
  );
  const file = await client.files.create({
    file: await toFile(Buffer.from(lines.join('\n')), 'in.jsonl'),
    purpose: 'batch',
  });
  return (await client.batches.create({ input_file_id: file.id, endpoint: ENDPOINT, completion_window: '24h' })).id;
}

const ended = (client: OpenAI, id: string, withinMs = LONG_MS) =>
  eventually('the batch has ended', withinMs, async () => {
    const batch = await client.batches.retrieve(id);
    return ['completed', 'failed', 'expired', 'cancelled'].includes(batch.status) ? batch : undefined;
  });

async function idsOf(client: OpenAI, file: string | null | undefined): Promise<string[]> {
  const text = await (await client.files.content(file ?? '')).text();
  return text.trimEnd().split('\n').map((one) => String(JSON.parse(one).custom_id)); // biome-ignore format: one thing
}

const linesAt = (engine: Engine | undefined) => engine?.requests.filter(({ url }) => url === ENDPOINT).length ?? 0;

/** Forwards bytes until it is cut. Then no byte arrives, and no connection succeeds. */
async function cutWire(to: URL) {
  const open = new Set<Socket>();
  let cut = false;
  const server: Server = createServer((near) => {
    if (cut) return void near.destroy();
    const far = connect(Number(to.port), to.hostname);
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(one);
      one.on('error', () => {});
      one.on('close', () => {
        open.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  atEnd(() => {
    for (const one of open) one.destroy();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    url: `http://127.0.0.1:${address.port}`,
    set(isCut: boolean): void {
      cut = isCut;
      if (isCut) for (const one of open) one.destroy();
    },
  };
}

describe('a batch', () => {
  it('beside a broken engine gets every answer of the healthy one: no line uses up its attempts at one node', async () => {
    const cluster = await openTestCluster({ nodes: 2 });
    const client = clientOf(cluster);
    cluster.engines[0]?.control({ status: 500 });
    cluster.engines[1]?.control({ delayMs: 30 });
    const ids = named(400);
    const batch = await ended(client, await begin(client, ids));
    expect(batch.request_counts).toEqual({ total: 400, completed: 400, failed: 0 });
    expect((await idsOf(client, batch.output_file_id)).sort()).toEqual([...ids].sort());
    expect(linesAt(cluster.engines[0])).toBeGreaterThan(0);
  });

  it.each([
    ['500', { status: 500 }, 'It answered 500.'],
    ['garbage', { fault: 'garbage' as const }, 'HTTP'],
  ])('whose only engine answers %s to every line ends, each line with the reason', async (_, behaviour, why) => {
    const cluster = await openTestCluster();
    cluster.engine.control(behaviour);
    const client = clientOf(cluster);
    const batch = await ended(client, await begin(client, named(3)));
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 3, completed: 0, failed: 3 } });
    expect(batch.output_file_id ?? null).toBeNull();
    const text = await (await client.files.content(batch.error_file_id ?? '')).text();
    const errors = text.trimEnd().split('\n').map((one) => JSON.parse(one)); // biome-ignore format: one thing
    expect(errors.map(({ error }) => error.code)).toEqual(['engine_failed', 'engine_failed', 'engine_failed']);
    for (const { error } of errors) expect(error.message).toContain(why);
  });

  it('does not wait for the slow node that holds its last lines: another one runs them as well', async () => {
    const cluster = await openTestCluster({ nodes: 2 });
    cluster.engines[0]?.control({ delayMs: 60_000 });
    const client = clientOf(cluster);
    const ids = named(1_000);
    const batch = await ended(client, await begin(client, ids), 45_000);
    expect(linesAt(cluster.engines[0])).toBeGreaterThan(0);
    expect(batch.request_counts).toEqual({ total: 1_000, completed: 1_000, failed: 0 });
    expect((await idsOf(client, batch.output_file_id)).sort()).toEqual([...ids].sort());
  });

  it('of which a node is cut off past its lease, and comes back with results that others have given: each line once', async () => {
    const cluster = await openTestCluster();
    const wire = await cutWire(new URL(cluster.gateway.url));
    const away = await startEngine({ models: [MODEL] });
    atEnd(() => away.close());
    await startAgent({ gateways: [wire.url], token: cluster.token, engineUrl: away.url });
    await cluster.gateway.serving(2);
    for (const engine of [cluster.engine, away]) engine.control({ delayMs: 150 });
    const client = clientOf(cluster);
    // Few chunks, so that none of them is late compared with the median of the others. Only the end of the lost node's
    // lease then requeues them.
    const ids = named(300);
    const id = await begin(client, ids);
    await eventually('both nodes run lines', 20_000, async () =>
      linesAt(away) > 5 && linesAt(cluster.engine) > 5 ? true : undefined,
    );
    wire.set(true);
    // The gateway ends its leases after 15 s without contact.
    const cutOff = linesAt(away);
    const batch = await eventually('lines of the lost node are requeued', 60_000, async () => {
      const now = await client.batches.retrieve(id);
      return ((now as { x_otela?: { requeued: number } }).x_otela?.requeued ?? 0) > 0 ? now : undefined;
    });
    expect(batch.status).toBe('in_progress');
    wire.set(false);
    const over = await ended(client, id);
    expect(over.request_counts).toEqual({ total: 300, completed: 300, failed: 0 });
    expect((await idsOf(client, over.output_file_id)).sort()).toEqual([...ids].sort());
    // While it was away, the node continued with the lines that it had.
    expect(linesAt(away)).toBeGreaterThan(cutOff);
  });
});
