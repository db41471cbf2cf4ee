/**
 * A batch that is writing its files: its object on Cloudflare's runtime, with a file store and a clock that the test
 * controls.
 */
import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { expect, test } from 'vitest';
import { BOOTSTRAP_ACCOUNT } from '../../../gateway/accounts/account.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { BatchObject } from '../../../gateway/batch/batch-object.ts';
import type { BatchSpec } from '../../../gateway/batch/batch-spec.ts';
import type { Env } from '../../../gateway/env.ts';
import { type FileStore, FileStoreError } from '../../../gateway/files/file-store.ts';
import { files } from '../../../gateway/files/file-tables.ts';
import type { ObjectContext } from '../../../gateway/platform/object-context.ts';
import type { SnapshotDelta } from '../../../gateway/registry/snapshot-store.ts';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { limitedStorage } from '../support/cloudflare-limits.ts';
import { runInDurableObject } from '../support/durable.ts';

const request = { custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: { model: 'm', messages: [] } };
const input = new TextEncoder().encode(`${JSON.stringify(request)}\n`);
const spec: BatchSpec = {
  id: 'batch_closing',
  owner: 'key:test',
  account: BOOTSTRAP_ACCOUNT,
  endpoint: '/v1/chat/completions',
  inputFileId: 'file-input',
  inputExists: true,
  windowS: 60,
  metadata: null,
  outputExpiresS: null,
};

test.each([
  ['was cancelled', 'cancelled'],
  ['has expired', 'expired'],
])(
  'of a batch that %s no line is leased and no result taken while its files are written: it would be in none of them',
  async (_, end) => {
    const said = await runInDurableObject(env.LIMITS.getByName(`batch that is ${end}`), async (_, { storage }) => {
      let now = Date.now();
      const during: unknown[] = [];
      async function* content() {
        yield input;
      }
      const files = {
        read: async () => content(),
        put: async (_: string, lines: AsyncIterable<Uint8Array>) => {
          const result = { line: 0, status_code: 200, request_id: 'r', body: '{"usage":{}}' };
          during.push(
            batch.renewal(ref),
            await batch.commit(ref, [result], 'lab'),
            batch.grant('another', [0], undefined),
          );
          let bytes = 0;
          for await (const piece of lines) bytes += piece.length;
          return { bytes };
        },
      } as unknown as FileStore;
      const ctx = {
        name: spec.id,
        storage: { sql: storage.sql, kv: storage.kv, getAlarm: async () => null, setAlarm: async () => {} },
        clock: { now: () => now, after: () => () => {}, every: () => () => {} },
        waitUntil: (work: Promise<unknown>) => void work.catch(() => {}),
      } as unknown as ObjectContext;
      const batch = new BatchObject(ctx, { ...env, FILES: files } as unknown as Env);
      await batch.start(spec);
      await batch.alarm();
      const lease = batch.grant('node', [0], undefined);
      if (lease === null) throw new Error('nothing was leased');
      const ref = { node: 'node', chunk: lease.chunk, epoch: lease.epoch };
      if (end === 'cancelled') await batch.cancel();
      now += 59_000;
      batch.renew(ref);
      now += 2_000;
      await batch.alarm();
      return { during, shown: batch.show() };
    });
    expect(said.shown).toMatchObject({ status: end, request_counts: { total: 1, completed: 0 }, output_file_id: null });
    expect(said.shown?.error_file_id).toMatch(/^file-/);
    expect(said.during).toEqual([
      { leased: false, stop: true },
      { leased: false, stop: true, again: [], elsewhere: 0 },
      null,
    ]);
  },
);

test('a batch that is cancelled does not wait for the lines of a node that has left', async () => {
  const entry = { session: 'left', provider: 'lab', state: 'LEFT', connected: false, suspected: false, models: [] };
  const whole = { whole: true, removed: [], tag: 'of-the-test' };
  const delta: SnapshotDelta = { ...whole, entries: [entry as unknown as RegistryEntry] };
  const REGISTRY = { getByName: () => ({ snapshot: async () => delta }) };
  const later = Date.now() + 60_000; // the registry view from the previous tests is stale by then
  const status = await runInDurableObject(env.LIMITS.getByName('batch of a node that left'), async (_, { storage }) => {
    async function* content() {
      yield input;
    }
    const files = { read: async () => content(), put: async () => ({ bytes: 0 }) } as unknown as FileStore;
    const ctx = {
      name: spec.id,
      storage: { sql: storage.sql, kv: storage.kv, getAlarm: async () => null, setAlarm: async () => {} },
      clock: { now: () => later, after: () => () => {}, every: () => () => {} },
      waitUntil: (work: Promise<unknown>) => void work.catch(() => {}),
    } as unknown as ObjectContext;
    const batch = new BatchObject(ctx, { ...env, FILES: files, REGISTRY } as unknown as Env);
    await batch.start(spec);
    await batch.alarm();
    expect(batch.grant('left', [0], undefined)).not.toBeNull();
    await batch.cancel();
    await batch.alarm();
    return batch.show()?.status;
  });
  expect(status).toBe('cancelled');
});

interface At {
  batch: BatchObject;
  clock: { ms: number };
  /** Its state after each step. */
  said: unknown[];
  step(): Promise<void>;
}

/** A batch of one line in the test's file store, with one response; `put` gets each file that it writes. */
async function answered<T>(
  name: string,
  body: string,
  put: (text: string) => void,
  then: (at: At) => Promise<T>,
): Promise<T> {
  return runInDurableObject(env.LIMITS.getByName(name), async (_, { storage }) => {
    const clock = { ms: Date.now() };
    async function* content() {
      yield input;
    }
    const files = {
      read: async () => content(),
      put: async (_: string, lines: AsyncIterable<Uint8Array>) => {
        let text = '';
        for await (const piece of lines) text += new TextDecoder().decode(piece);
        put(text);
        return { bytes: text.length };
      },
    } as unknown as FileStore;
    const ctx = {
      name: spec.id,
      storage: { ...limitedStorage(storage), getAlarm: async () => null, setAlarm: async () => {} },
      clock: { now: () => clock.ms, after: () => () => {}, every: () => () => {} },
      waitUntil: (work: Promise<unknown>) => void work.catch(() => {}),
    } as unknown as ObjectContext;
    const batch = new BatchObject(ctx, { ...env, FILES: files } as unknown as Env);
    await batch.start({ ...spec, id: `batch_${name.replaceAll(' ', '')}` });
    await batch.alarm();
    const lease = batch.grant('node', [0], undefined);
    if (lease === null) throw new Error('nothing was leased');
    // Only the node with the lease may say why it declines.
    batch.release({ node: 'another', chunk: lease.chunk, epoch: lease.epoch }, 'invented');
    batch.release({ node: 'node', chunk: lease.chunk, epoch: lease.epoch + 1 }, 'invented');
    expect(batch.show()?.x_otela).toMatchObject({ nodes: 1, waiting_for: null });
    const result = { line: 0, status_code: 200, request_id: 'r', body };
    await batch.commit({ node: 'node', chunk: lease.chunk, epoch: lease.epoch }, [result], 'lab');
    const said: unknown[] = [];
    const step = async () => {
      await batch.alarm();
      said.push(batch.show()?.status);
    };
    await step();
    await step();
    return then({ batch, clock, said, step });
  });
}

test('an answer that is nested too deeply to be written anew does not keep its batch from its end', async () => {
  const files: string[] = [];
  const deep = `${'['.repeat(9_000)}${']'.repeat(9_000)}`;
  const said = await answered(
    'deep answer',
    deep,
    (text) => void files.push(text),
    async (at) => at.said,
  );
  expect(said).toEqual(['finalizing', 'completed']);
  expect(files.map((text) => JSON.parse(text).response.body)).toEqual([deep]);
});

/** Cloudflare's row has two million bytes. */
test.each([
  ['quotes', JSON.stringify('"'.repeat(524_287))],
  ['characters of three bytes', JSON.stringify('字'.repeat(1_048_574))],
  ['characters that JSON escapes', '\u0001'.repeat(1_048_576)],
])('the longest answer, of %s, is stored, and written', async (name, body) => {
  expect(body).toHaveLength(1_048_576);
  const files: string[] = [];
  const said = await answered(
    `long ${name}`,
    body,
    (text) => void files.push(text),
    async (at) => at.said,
  );
  expect(said).toEqual(['finalizing', 'completed']);
  const [written] = files.map((text) => JSON.parse(text).response.body);
  expect(typeof written === 'string' && [written, JSON.stringify(written)].includes(body)).toBe(true);
});

test('a step that fails in the same way three times ends its batch, and says why', async () => {
  const failing = () => {
    throw new RangeError('it cannot be done');
  };
  const [said, errors] = await answered<[unknown[], unknown]>(
    'step that fails',
    '{}',
    failing,
    async ({ batch, said, step }) => {
      await step();
      await step();
      return [said, batch.show()?.errors?.data];
    },
  );
  expect(said).toEqual(['finalizing', 'finalizing', 'finalizing', 'failed']);
  expect(errors).toMatchObject([{ message: expect.stringContaining('it cannot be done') }]);
});

test('a batch whose files no store takes can be cancelled, and ends', async () => {
  const full = () => {
    throw new FileStoreError('full', 'no room');
  };
  const [said, shown] = await answered<[unknown[], unknown]>(
    'no store',
    '{}',
    full,
    async ({ batch, clock, said, step }) => {
      for (let i = 0; i < 4; i++) await step();
      expect(new Set(said)).toEqual(new Set(['finalizing']));
      expect(await batch.cancel()).toMatchObject({ status: 'cancelling' });
      await step();
      clock.ms += 660_000;
      await step();
      return [said, batch.show()];
    },
  );
  expect(said.slice(-2)).toEqual(['cancelling', 'cancelled']);
  expect(shown).toMatchObject({ output_file_id: null, errors: { data: [{ line: null }] } });
});

test('a batch waits with its results while its owner has no room for them, and is given what fits at the end of its window', async () => {
  const hoard = { id: 'file-hoard', owner: spec.owner, createdBy: 'key', purpose: 'user_data', filename: 'f' };
  const row = { ...hoard, bytes: 20_000_000_000, createdAt: 0, expiresAt: null };
  const written: string[] = [];
  await database(env).insert(files).values(row);
  const full = answered(
    'no room',
    '{"long":"answer"}',
    (text) => void written.push(text),
    async ({ batch, clock, said, step }) => {
      await step();
      const waits = batch.show()?.x_otela.waiting_for;
      expect([said, written]).toEqual([['finalizing', 'finalizing', 'finalizing'], []]);
      clock.ms += 61_000;
      await step();
      return [waits, batch.show()];
    },
  );
  try {
    expect(await full).toMatchObject([
      expect.stringContaining('more than your quota'),
      { status: 'completed', request_counts: { completed: 0, failed: 1 } },
    ]);
  } finally {
    await database(env).delete(files).where(eq(files.id, row.id));
  }
  expect(JSON.parse(written.at(-1) ?? '')).toMatchObject({ custom_id: 'a', error: { code: 'response_too_large' } });
});
