/** Files that calls of functions wrote: what the gateway stores of what a node sends. */
import { env as worker } from 'cloudflare:workers';
import { eq, inArray } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { BOOTSTRAP_ACCOUNT } from '../../../gateway/accounts/account.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { BatchOutputs } from '../../../gateway/batch/batch-outputs.ts';
import { BatchRecord } from '../../../gateway/batch/batch-record.ts';
import type { BatchSpec } from '../../../gateway/batch/batch-spec.ts';
import { outputFileId } from '../../../gateway/batch/output-file-id.ts';
import { writeFiles } from '../../../gateway/batch/result-files.ts';
import { hasOutput, type OutputPlace, storeOutput } from '../../../gateway/batch/store-output.ts';
import type { Env } from '../../../gateway/env.ts';
import type { FileStore } from '../../../gateway/files/file-store.ts';
import { files } from '../../../gateway/files/file-tables.ts';
import { outputFileSchema } from '../../../shared/batch/function-files.ts';
import { runInDurableObject } from '../support/durable.ts';

const SHA256 = '2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824';
const HELLO = { name: 'plot.png', bytes: 5, sha256: SHA256 };
const NOW = 1_800_000_000_000;

/** A gateway with a map as its file store. As a real one, it stores a file completely or not at all. */
function gateway() {
  const stored = new Map<string, string>();
  const store = {
    put: async (id: string, content: AsyncIterable<Uint8Array>) => {
      let whole = '';
      for await (const piece of content) whole += new TextDecoder().decode(piece);
      stored.set(id, whole);
      return { bytes: whole.length };
    },
    read: async () => undefined,
    delete: async (id: string) => void stored.delete(id),
  } as unknown as FileStore;
  return { stored, env: { ...worker, FILES: store } as unknown as Env };
}

async function* bytesOf(...pieces: string[]): AsyncGenerator<Uint8Array> {
  for (const piece of pieces) yield new TextEncoder().encode(piece);
}

const placeOf = (batch: string): OutputPlace => ({
  id: outputFileId(batch, SHA256),
  owner: `project:${batch}`,
  createdBy: 'key_1',
  expiresAt: NOW + 3_600_000,
});

const rowOf = async (id: string) =>
  (
    await database(worker as Env)
      .select()
      .from(files)
      .where(eq(files.id, id))
  )[0];

test('a file is stored once, and its owner finds it under its name at once', async () => {
  const { env, stored } = gateway();
  const place = placeOf('stored');
  expect(await hasOutput(env, place, HELLO, NOW)).toBe(false);
  await storeOutput(env, place, HELLO, bytesOf('he', 'llo'), NOW);
  expect(stored.get(place.id)).toBe('hello');
  expect(await rowOf(place.id)).toMatchObject({
    owner: 'project:stored',
    filename: 'plot.png',
    purpose: 'batch_output',
    bytes: 5,
    expiresAt: NOW + 3_600_000,
  });
  expect(await hasOutput(env, place, HELLO, NOW)).toBe(true);
  await storeOutput(env, place, HELLO, bytesOf('hello'), NOW);
  // After its end, the same file is sent again.
  expect(await hasOutput(env, place, HELLO, NOW + 3_600_001)).toBe(false);
});

test.each([
  ['other bytes', ['hallo']],
  ['fewer bytes', ['hell']],
  ['more bytes', ['hello', '!']],
  ['nothing', []],
])('of a node that sends %s than it announced nothing is stored, and a good copy stays', async (what, pieces) => {
  const { env, stored } = gateway();
  const place = placeOf(`other ${what}`);
  await expect(storeOutput(env, place, HELLO, bytesOf(...pieces), NOW)).rejects.toMatchObject({
    code: 'invalid_request',
  });
  expect([stored.size, await rowOf(place.id)]).toEqual([0, undefined]);
  await storeOutput(env, place, HELLO, bytesOf('hello'), NOW);
  await expect(storeOutput(env, place, HELLO, bytesOf(...pieces), NOW)).rejects.toMatchObject({ status: 400 });
  expect(stored.get(place.id)).toBe('hello');
});

test('a file that does not fit into its owner’s quota is refused before its bytes are sent', async () => {
  const { env } = gateway();
  const place = placeOf('quota');
  const row = { id: 'file-large', owner: place.owner, createdBy: 'k', purpose: 'batch', filename: 'x', createdAt: NOW };
  await database(env)
    .insert(files)
    .values({ ...row, bytes: 20_000_000_000, expiresAt: null });
  await expect(hasOutput(env, place, HELLO, NOW)).rejects.toMatchObject({ code: 'insufficient_quota' });
  await expect(storeOutput(env, place, HELLO, bytesOf('hello'), NOW)).rejects.toMatchObject({ status: 429 });
  expect(await rowOf(place.id)).toBeUndefined();
});

test.each([
  ['a name with a directory', { name: '../plot.png' }],
  ['a name with a line end', { name: 'a\r\nset-cookie: x' }],
  ['a name with half a character', { name: '\ud800' }],
  ['a negative size', { bytes: -1 }],
  ['a gigabyte', { bytes: 1_000_000_000 }],
  ['no hash', { sha256: SHA256.toUpperCase() }],
])('an announcement of %s is not valid', (_, change) => {
  expect(outputFileSchema.safeParse(HELLO).success).toBe(true);
  expect(outputFileSchema.safeParse({ ...HELLO, ...change }).success).toBe(false);
});

test('a batch has at most 10,000 files, and 5 GB of them', () =>
  runInDurableObject(worker.LIMITS.getByName('many outputs'), (_, { storage }) => {
    const outputs = new BatchOutputs(storage);
    expect(outputs.reserve('large', 5_000_000_000)).toBe(true);
    expect(outputs.reserve('one more byte', 1)).toBe(false);
    expect(outputs.reserve('large', 5_000_000_000)).toBe(true);
    for (let i = 1; i < 10_000; i++) outputs.reserve(`empty ${i}`, 0);
    expect(outputs.reserve('one more', 0)).toBe(false);
  }));

const spec: BatchSpec = {
  id: 'batch_outputs',
  owner: 'project:lab',
  account: BOOTSTRAP_ACCOUNT,
  endpoint: '/v1/otela/functions',
  inputFileId: 'file-input',
  inputExists: true,
  windowS: 86_400,
  metadata: null,
  outputExpiresS: 7_200,
};

test('a result counts only if the gateway has its files; a file that no result names goes with the end of its batch', () =>
  runInDurableObject(worker.LIMITS.getByName('outputs of a batch'), async (_, { storage }) => {
    const record = new BatchRecord(storage, 1e6);
    record.create(spec, NOW);
    const chunk = { offset: 0, bytes: 100, first: 0, lines: 1, demands: 0, prefix: 0 };
    record.begin(
      { chunks: [chunk], demands: [{ model: 'function:file-1' }], lines: 1, model: 'm', files: [], errors: [] },
      NOW,
      { context: 'c'.repeat(64), sha256: 's', code: 'code' },
    );
    const epoch = record.ledger.grant('node', NOW, 60_000, () => true)?.lease.epoch ?? 0;
    const commit = (...named: string[]) =>
      record.commit(
        { node: 'node', chunk: 0, epoch },
        [{ line: 0, status_code: 200, request_id: 'r', body: '{}', files: named }],
        { provider: 'lab', gpus: 0, others: false, nowMs: NOW },
      );
    expect(commit('file-of-another-batch')).toMatchObject({ again: [0] });
    record.outputs.reserve('file-announced', 5);
    expect(commit('file-announced')).toMatchObject({ again: [0] });
    expect(record.state.counts.completed).toBe(0);
    record.outputs.setStored('file-announced');
    record.outputs.reserve('file-late', 5);
    expect(commit('file-announced')).toMatchObject({ again: [] });
    expect(record.state.counts.completed).toBe(1);
    expect(record.results(0).get(0)).not.toHaveProperty('files');

    const { env } = gateway();
    const row = { owner: spec.owner, createdBy: 'k', purpose: 'batch_output', filename: 'x', bytes: 5, createdAt: NOW };
    const rows = ['file-announced', 'file-late'].map((id) => ({ ...row, id, expiresAt: NOW + 1e9 }));
    await database(env).insert(files).values(rows);
    const read = async () => {
      const line = JSON.stringify({ custom_id: 'a', method: 'POST', url: spec.endpoint, body: {} });
      return bytesOf(line.padEnd(100));
    };
    const FILES = { ...env.FILES, read } as unknown as FileStore;
    await writeFiles({
      env: { ...env, FILES },
      record,
      spec,
      to: 'completed',
      unexecuted: 'engine_failed',
      nowMs: NOW,
    });
    const kept = await database(env)
      .select({ id: files.id, expiresAt: files.expiresAt })
      .from(files)
      .where(inArray(files.id, ['file-announced', 'file-late']))
      .orderBy(files.id);
    expect(kept).toEqual([
      { id: 'file-announced', expiresAt: NOW + 7_200_000 },
      { id: 'file-late', expiresAt: NOW },
    ]);
  }));
