/**
 * Batches while their file store is unavailable or full, and batches beyond the limits of number and size, with real
 * processes.
 */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import OpenAI, { toFile } from 'openai';
import { afterEach, describe, expect, it } from 'vitest';
import { mountFileSystem } from '../../support/file-system.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { BUCKET, NO_S3_SERVER, S3_SERVER, S3Server } from '../../support/s3-server.ts';
import { chatBody, MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

if (S3_SERVER === undefined) console.log(`skipped: a bucket: ${NO_S3_SERVER}`);

afterEach(endAll);

const ENDPOINT = '/v1/chat/completions';
const LONG_MS = 30_000;
const clientOf = ({ base, key }: TestCluster) => new OpenAI({ baseURL: base, apiKey: key, maxRetries: 0 });
const line = (id: string, standIn: object = {}, content = id) =>
  JSON.stringify({
    custom_id: id,
    method: 'POST',
    url: ENDPOINT,
    body: { model: MODEL, messages: [{ role: 'user', content }], stand_in: { tokens: 2, ...standIn } },
  });
const named = (count: number) => Array.from({ length: count }, (_, i) => `line-${i}`);
const put = async (client: OpenAI, text: string) =>
  client.files.create({ file: await toFile(Buffer.from(text), 'in.jsonl'), purpose: 'batch' });
async function begin(client: OpenAI, text: string): Promise<string> {
  const { id } = await put(client, text);
  return (await client.batches.create({ input_file_id: id, endpoint: ENDPOINT, completion_window: '24h' })).id;
}
const waitingFor = (batch: object) =>
  'x_otela' in batch ? (batch.x_otela as { waiting_for: string | null }).waiting_for : undefined;
const ended = (client: OpenAI, id: string) =>
  eventually('the end', LONG_MS, async () => {
    const batch = await client.batches.retrieve(id);
    return ['completed', 'failed'].includes(batch.status) ? batch : undefined;
  });
async function idsOf(client: OpenAI, file: string | null | undefined): Promise<string[]> {
  const text = await (await client.files.content(file ?? '')).text();
  return text
    .trimEnd()
    .split('\n')
    .map((one) => String(JSON.parse(one).custom_id));
}

describe('a batch whose files are in a bucket', () => {
  it.skipIf(S3_SERVER === undefined)(
    'waits while the bucket is away, says so, and goes on by itself; requests to models do not notice',
    async () => {
      const server = await S3Server.start();
      const cluster = await openTestCluster({
        gateway: { args: ['--files', `s3://${BUCKET}/otela`], env: server.env() },
        // Few slots, so that the batch has not ended when the bucket fails.
        agentArgs: ['--max-running', '16'],
      });
      const client = clientOf(cluster);
      const ids = named(600);
      const id = await begin(client, ids.map((one) => line(one, { delayMs: 30 })).join('\n'));
      const done = () => client.batches.retrieve(id).then((batch) => batch.request_counts?.completed ?? 0);
      await eventually('some lines', LONG_MS, async () => ((await done()) > 20 ? true : undefined));
      await server.stop();
      const refused = await put(client, line('late')).catch((error: object) => error);
      expect(refused).toMatchObject({ status: 503, code: 'server_is_overloaded' });
      expect((await cluster.ask(ENDPOINT, chatBody({ tokens: 1 }))).status).toBe(200);
      await eventually('it says what it waits for', LONG_MS, async () => {
        const batch = await client.batches.retrieve(id);
        return batch.status === 'in_progress' && waitingFor(batch)?.includes('file store') ? true : undefined;
      });
      await server.run();
      const batch = await ended(client, id);
      expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 600, completed: 600, failed: 0 } });
      expect((await idsOf(client, batch.output_file_id)).sort()).toEqual([...ids].sort());
    },
  );

  it.skipIf(S3_SERVER === undefined)('a gateway starts without its bucket, and says so', async () => {
    const server = await S3Server.start();
    await server.stop();
    const cluster = await openTestCluster({ gateway: { args: ['--files', `s3://${BUCKET}`], env: server.env() } });
    expect((await cluster.ask(ENDPOINT, chatBody({ tokens: 1 }))).status).toBe(200);
    await cluster.gateway.process.line(/files and batches are not available: the bucket did not answer/, 30_000);
    expect(cluster.gateway.process.output).not.toContain('a-secret-of-tests');
  });
});

describe('a batch whose directory is full', () => {
  it('keeps what it has, says so, and writes its answers when there is room', async (test) => {
    const disk = mountFileSystem({ sizeMiB: 64, kind: 'memory' });
    if (typeof disk === 'string') return test.skip(disk);
    const cluster = await openTestCluster({ gateway: { args: ['--files', join(disk.path, 'files')] } });
    const client = clientOf(cluster);
    const ids = named(40);
    const id = await begin(client, ids.map((one) => line(one, { delayMs: 100 })).join('\n'));
    disk.fill(0);
    const refused = await put(client, `${line('late', {}, 'x'.repeat(2_000_000))}\n`).catch((error: object) => error);
    expect(refused).toMatchObject({ status: 503, code: 'server_is_overloaded' });
    const stuck = await eventually('it says what it waits for', LONG_MS, async () => {
      const batch = await client.batches.retrieve(id);
      return waitingFor(batch) === 'The file store is full.' ? batch : undefined;
    });
    expect(stuck).toMatchObject({ status: 'finalizing', request_counts: { completed: 40 } });
    disk.empty();
    const batch = await ended(client, id);
    expect((await idsOf(client, batch.output_file_id)).sort()).toEqual([...ids].sort());
    expect((await client.files.list()).data).toHaveLength(2);
  });
});

describe('more than there may be', () => {
  it('50,001 lines are too many, and a line of 10 MB too long: the batch fails and says which', async () => {
    const cluster = await openTestCluster();
    const client = clientOf(cluster);
    const many = await begin(
      client,
      named(50_001)
        .map((id) => line(id))
        .join('\n'),
    );
    expect((await ended(client, many)).errors?.data).toMatchObject([{ code: 'too_many_tasks', line: null }]);
    const long = await begin(client, [line('a'), line('b', {}, 'x'.repeat(10_000_000)), line('c')].join('\n'));
    expect((await ended(client, long)).errors?.data).toMatchObject([{ code: 'line_too_long', line: 2 }]);
  });

  it('10,000 files are listed, in one page or in many, each once', async () => {
    const cluster = await openTestCluster();
    const client = clientOf(cluster);
    const { id } = await put(client, line('a'));
    const accounts = new DatabaseSync(join(cluster.gateway.data, 'accounts.sqlite'));
    // As many rows as uploads would create in minutes; some have the same time.
    accounts.exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
        INSERT INTO files SELECT printf('file-%024d', i), owner, created_by, purpose, filename, bytes, created_at + i / 7, expires_at
        FROM n, files WHERE id = '${id}'`);
    accounts.close();
    const startedAt = performance.now();
    expect((await client.files.list()).data).toHaveLength(10_000);
    const seen: string[] = [];
    for await (const file of client.files.list({ limit: 900, order: 'asc' })) seen.push(file.id);
    expect([seen.length, new Set(seen).size]).toEqual([10_000, 10_000]);
    const newest: string[] = [];
    for await (const file of client.files.list({ limit: 999 })) newest.push(file.id);
    expect(newest).toEqual(seen.reverse());
    expect(performance.now() - startedAt).toBeLessThan(30_000);
  });
});
