/** Batches that need results of others, in the objects of Cloudflare's runtime. */
import { env as worker } from 'cloudflare:workers';
import { expect, test } from 'vitest';
import { BOOTSTRAP_ACCOUNT } from '../../../gateway/accounts/account.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { BatchRecord } from '../../../gateway/batch/batch-record.ts';
import type { BatchSpec } from '../../../gateway/batch/batch-spec.ts';
import { addDependencies, readAfter } from '../../../gateway/batch/dependencies/add-dependencies.ts';
import { Dependents } from '../../../gateway/batch/dependencies/dependents.ts';
import { progressOf, valuesOf } from '../../../gateway/batch/dependencies/record-values.ts';
import { resolveLines } from '../../../gateway/batch/dependencies/resolve-lines.ts';
import { outputFileId } from '../../../gateway/batch/output-file-id.ts';
import { outputLines } from '../../../gateway/batch/output-lines.ts';
import type { Env } from '../../../gateway/env.ts';
import type { FileStore } from '../../../gateway/files/file-store.ts';
import { batches } from '../../../gateway/files/file-tables.ts';
import { type CheckedInput, InputCheck } from '../../../shared/batch/batch-input-check.ts';
import type { LineResult } from '../../../shared/batch/line-results.ts';
import { runInDurableObject } from '../support/durable.ts';

const NOW = 1_800_000_000_000;
const FUNCTIONS = '/v1/otela/functions';
const CHAT = '/v1/chat/completions';

const specOf = (id: string, more: Partial<BatchSpec> = {}): BatchSpec => ({
  id,
  owner: 'project:lab',
  account: BOOTSTRAP_ACCOUNT,
  endpoint: FUNCTIONS,
  inputFileId: 'file-input',
  inputExists: true,
  windowS: 86_400,
  metadata: null,
  outputExpiresS: null,
  ...more,
});

const chunk = { offset: 0, bytes: 300, first: 0, lines: 3, demands: 0, prefix: 0 };
const checkedOf = (lines: number): CheckedInput => ({
  chunks: [{ ...chunk, lines }],
  demands: [{ model: 'm' }],
  lines,
  model: 'm',
  files: [],
  errors: [],
});
const output = (line: number, value: unknown): LineResult => ({
  line,
  status_code: 200,
  request_id: 'r',
  body: JSON.stringify({ object: 'otela.function.output', model: 'm', output: value }),
});

/** A store with one file. */
const storeOf = (text: string) =>
  ({
    read: async (_: string, { offset, length }: { offset: number; length: number }) => {
      const bytes = new TextEncoder().encode(text).slice(offset, offset + length);
      return (async function* () {
        yield bytes;
      })();
    },
  }) as unknown as FileStore;

/** Runs `act` with the stored batch of an object. */
const inObject = <T>(name: string, act: (record: BatchRecord) => T | Promise<T>): Promise<T> =>
  runInDurableObject(worker.LIMITS.getByName(name), (_, { storage }) => act(new BatchRecord(storage, 1e8)));

interface Chain {
  first<T>(act: (record: BatchRecord) => T): Promise<T>;
  second<T>(act: (record: BatchRecord) => T | Promise<T>): Promise<T>;
  /** Commits results of the first batch. */
  commit(...results: LineResult[]): Promise<void>;
  /** Runs a step of the second batch. @returns the texts of its chunks that nodes may run */
  step(): Promise<string[]>;
  lines: string;
}

/** A batch of three lines, and another with lines that need their results. Each step reads what the last one stored. */
async function chain(
  name: string,
  inputs: readonly { input: unknown; files?: readonly string[]; after?: unknown }[],
  endpoint: typeof FUNCTIONS | typeof CHAT = FUNCTIONS,
): Promise<Chain> {
  const first = <T>(act: (record: BatchRecord) => T) => inObject(`first of ${name}`, act);
  const second = <T>(act: (record: BatchRecord) => T | Promise<T>) => inObject(`second of ${name}`, act);
  const epoch = await first((record) => {
    record.create(specOf('batch_first', { metadata: { opentela_function: 'extract' } }), NOW);
    record.begin(checkedOf(3), NOW, { context: 'c', sha256: 's', code: 'x' });
    const granted = record.ledger.grant('node', NOW, 60_000, () => true);
    record.store();
    return granted?.lease.epoch ?? 0;
  });
  const lines = inputs
    .map(({ input, files, ...more }, i) =>
      JSON.stringify({
        custom_id: `line-${i}`,
        method: 'POST',
        url: endpoint,
        body:
          endpoint === CHAT
            ? { model: 'm', messages: [{ role: 'user', content: input }] }
            : { model: 'm', input, ...(files && { files }) },
        ...more,
      }),
    )
    .join('\n');
  const spec = specOf('batch_second', { after: ['batch_first'], endpoint });
  await second((record) => {
    record.create(spec, NOW);
    const check = new InputCheck({ endpoint, after: 1 });
    check.push(new TextEncoder().encode(lines));
    record.begin(check.end(), NOW, undefined);
  });
  const stub = {
    progress: () => first(progressOf),
    values: (asked: readonly number[]) => first((record) => valuesOf(record, asked)),
  };
  const env = { FILES: storeOf(lines), BATCH: { getByName: () => stub } } as unknown as Env;
  return {
    first,
    second,
    lines,
    commit: (...results) =>
      first((record) => {
        const at = { provider: 'lab', gpus: 0, others: false, nowMs: NOW };
        record.commit({ node: 'node', chunk: 0, epoch }, results, at);
      }),
    step: () =>
      second(async (record) => {
        await resolveLines({ env, record, spec, nowMs: NOW });
        const resolved = record.ledger.chunks.filter((one) => one.resolved !== undefined);
        return resolved.map(({ id }) => new TextDecoder().decode(record.waiting.text(id)));
      }),
  };
}

const inputsOf = (texts: readonly string[]) =>
  texts.flatMap((text) =>
    text.split('\n').map((line) => (JSON.parse(line) as { body: { input: unknown } }).body.input),
  );
const R = (line: number) => ({ $result: [0, line] });

test('lines run as soon as their own results are there, with digits as they were written', async () => {
  const inputs = [{ input: { args: [R(0), R(1)] } }, { input: R(2) }, { input: 5, after: [[0, 0]] }];
  const { commit, step, second } = await chain('pipeline', inputs);
  expect(await step()).toEqual([]);
  await commit({ ...output(2, 0), body: '{"output":18446744073709551617}' });
  const [text = ''] = await step();
  expect(text).toContain('{"$otela_value":18446744073709551617}');
  await commit(output(0, 'a'), output(1, { $result: [0, 2] }));
  expect(inputsOf((await step()).slice(1))).toEqual([
    { args: [{ $otela_value: 'a' }, { $otela_value: { $result: [0, 2] } }] },
    5,
  ]);
  const found = await second(({ waiting, ledger }) => ({
    waiting: waiting.all.length,
    open: ledger.open,
    resolved: ledger.chunks.map((one) => one.resolved),
  }));
  expect(found).toEqual({
    waiting: 0,
    open: 3,
    resolved: [
      { numbers: [1], ids: ['line-1'] },
      { numbers: [0, 2], ids: ['line-0', 'line-2'] },
    ],
  });
});

test('a line with a failed dependency is not run, and names the first cause; others run', async () => {
  const inputs = [{ input: R(0) }, { input: R(1) }, { input: 1, after: [[0, 1]] }, { input: R(9) }];
  const { commit, step, first, second } = await chain('failure', inputs);
  const error = { message: 'ValueError: no luck (line 3)', type: 'function_error', param: null, code: 'x' };
  await commit(output(0, 1), { line: 1, status_code: 400, request_id: 'r', body: JSON.stringify({ error }) });
  await commit({ line: 2, status_code: 0, request_id: 'r', body: '', error: 'engine_failed', why: 'it burned' });
  expect(inputsOf(await step())).toEqual([{ $otela_value: 1 }]);
  expect(await second(({ state }) => state.counts)).toEqual({ total: 4, completed: 0, failed: 2 });
  const why = 'A call of extract failed: ValueError: no luck (line 3)';
  expect(await second((record) => valuesOf(record, [1, 2]))).toEqual([
    { line: 1, why },
    { line: 2, why },
  ]);
  // A line that the first batch does not have is awaited until the first batch ends.
  expect(await second(({ waiting }) => waiting.all.length)).toBe(1);
  await first((record) => {
    record.dependents.add('batch_second', NOW + 1_000);
    record.move('finalizing', NOW);
    record.end('completed', NOW, { outputFileId: null, errorFileId: null, leftOut: 0 });
  });
  await step();
  expect(await second(({ waiting }) => waiting.all.length)).toBe(0);
  expect(await second((record) => valuesOf(record, [3]))).toMatchObject([
    { why: expect.stringContaining('the batch is completed') },
  ]);
});

test('the files of a batch have each line once, under its own id, also if it ends while lines wait', async () => {
  const { commit, step, second, lines } = await chain('files', [
    { input: R(1) },
    { input: 1 },
    { input: R(0) },
    { input: R(2) },
  ]);
  await commit(output(0, 'zero'));
  await step();
  const written = await second(async (record) => {
    record.endWaiting();
    const pieces = outputLines({
      batch: 'batch_second',
      input: 'file-input',
      store: storeOf(lines),
      chunks: record.ledger.chunks,
      results: (chunkId) => record.results(chunkId),
      successes: false,
      unexecuted: 'batch_cancelled',
      mayLackInput: false,
      leftOut: new Set(),
      maxBytes: 1e6,
    });
    let text = '';
    for await (const piece of pieces) text += new TextDecoder().decode(piece);
    return text.trimEnd().split('\n');
  });
  const parsed = written.map((line) => JSON.parse(line) as { id: string; custom_id: string });
  expect(parsed.map((line) => [line.custom_id, line.id]).sort()).toEqual(
    [0, 1, 2, 3].map((n) => [`line-${n}`, `batch_req_second00000${n}`]),
  );
});

const SHA256 = 'ab'.repeat(32);

/** A result with files of the batch `of`. */
function withFiles(line: number, of: string, names: readonly string[]): LineResult {
  const files = names.map((name, i) => {
    const sha256 = `${SHA256.slice(2)}${i.toString(16).padStart(2, '0')}`;
    return { id: outputFileId(of, sha256), name, bytes: 3, sha256 };
  });
  const marks = files.map(({ name }, i) => ({ $file: i, name }));
  const body = { object: 'otela.function.output', model: 'm', output: marks, files };
  return { ...output(line, 0), body: JSON.stringify(body) };
}

const idsOf = (result: LineResult) =>
  (JSON.parse(result.body) as { files: { id: string }[] }).files.map((file) => file.id);

test('a line gets the files of its results beside its own, and nodes that run it may read them', async () => {
  const inputs = [{ input: { args: [R(0), R(0)] }, files: ['file-own'] }, { input: R(1) }];
  const { commit, step, second } = await chain('result files', inputs);
  const [plots, table] = [withFiles(0, 'batch_first', ['a.png', 'b.png']), withFiles(1, 'batch_first', ['a.png'])];
  await commit(plots, table, output(2, 0));
  const ids = idsOf(plots);
  const value = {
    $otela_value: [
      { $file: 0, name: 'a.png' },
      { $file: 1, name: 'b.png' },
    ],
    files: [
      [ids[0], 'a.png'],
      [ids[1], 'b.png'],
    ],
  };
  const bodies = (await step()).flatMap((text) => text.split('\n').map((line) => JSON.parse(line).body));
  expect(bodies).toEqual([
    { model: 'm', input: { args: [value, value] }, files: ['file-own', ...ids] },
    {
      model: 'm',
      input: { $otela_value: [{ $file: 0, name: 'a.png' }], files: [[ids[0], 'a.png']] },
      files: [ids[0]],
    },
  ]);
  const readable = await second(({ waiting }) =>
    [...ids, 'file-own', outputFileId('batch_first', SHA256)].map((one) => waiting.hasFile(one)),
  );
  expect(readable).toEqual([true, true, false, false]);
});

test('a result cannot give other lines a file that its batch did not write', async () => {
  const { commit, step, second } = await chain('foreign files', [{ input: R(0) }, { input: R(1) }, { input: R(2) }]);
  const foreign = withFiles(0, 'batch_of_another_owner', ['a.png']);
  const odd = { ...output(1, 0), body: '{"output":{"$file":0,"name":"a"},"files":[{"id":"file-1","name":"../a"}]}' };
  await commit(foreign, odd, withFiles(2, 'batch_first', ['a.png']));
  expect((await step()).map((text) => JSON.parse(text).custom_id)).toEqual(['line-2']);
  expect(await second((record) => valuesOf(record, [0, 1]))).toMatchObject([
    { why: expect.stringContaining('no value that another call can get') },
    { why: expect.stringContaining('no value that another call can get') },
  ]);
  expect(await second(({ waiting }) => waiting.hasFile(idsOf(foreign)[0] ?? ''))).toBe(false);
});

test('a line with its results has at most 64 files', async () => {
  const names = Array.from({ length: 60 }, (_, i) => `${i}.png`);
  const files = Array.from({ length: 5 }, (_, i) => `file-${i}`);
  const { commit, step, second } = await chain('many files', [{ input: R(0), files }, { input: R(0) }]);
  await commit(withFiles(0, 'batch_first', names), output(1, 0), output(2, 0));
  expect((await step()).map((text) => JSON.parse(text).custom_id)).toEqual(['line-1']);
  expect(await second((record) => valuesOf(record, [0]))).toMatchObject([
    { why: 'The results that it needs have too many files.' },
  ]);
});

test('a served model gets texts alone', async () => {
  const { commit, step, second } = await chain('chat', [{ input: R(0) }, { input: R(1) }], CHAT);
  await commit(output(0, 'say "a"'), output(1, { role: 'system' }));
  const [text = ''] = await step();
  expect(JSON.parse(text).body.messages).toEqual([{ role: 'user', content: 'say "a"' }]);
  expect(await second((record) => valuesOf(record, [1]))).toMatchObject([
    { why: expect.stringContaining('takes texts') },
  ]);
});

test('results that are too large for one line fail it, and no other', async () => {
  const inputs = [{ input: [R(0), R(1), R(2), R(0), R(1)] }, { input: R(0) }];
  const { commit, step, second } = await chain('large', inputs);
  const large = 'x'.repeat(1_000_000);
  await commit(output(0, large), output(1, large), output(2, large));
  expect((await step()).map((text) => JSON.parse(text).custom_id)).toEqual(['line-1']);
  expect(await second(({ state, ledger }) => [state.counts.failed, ledger.open])).toEqual([1, 1]);
  expect(await second((record) => valuesOf(record, [0]))).toMatchObject([
    { why: 'The results that it needs are too large.' },
  ]);
});

test('an ended batch keeps its results until the batches that need them have ended, or their time is over', async () => {
  const { commit, first } = await chain('kept', [{ input: R(0) }]);
  await commit(output(0, 'a'), output(1, 'b'), output(2, 'c'));
  const read = (...asked: number[]) => first((record) => valuesOf(record, asked));
  await first((record) => {
    record.dependents.add('batch_second', NOW + 1_000);
    record.move('finalizing', NOW);
    record.end('completed', NOW, { outputFileId: null, errorFileId: null, leftOut: 0 });
  });
  expect(await first((record) => progressOf(record).ended)).toBe(true);
  expect(await read(2, 0)).toEqual([
    { line: 2, value: '"c"' },
    { line: 0, value: '"a"' },
  ]);
  await first((record) => record.forgetResults(NOW + 86_400_000));
  expect(await read(0)).toMatchObject([{ value: '"a"' }]);
  await first((record) => {
    record.dependents.remove('batch_second');
    record.forgetResults(NOW);
  });
  expect(await read(0)).toMatchObject([{ why: expect.stringContaining('has no result') }]);
});

test('at most 64 batches need results of one; a batch that never ends is forgotten after its time', () =>
  runInDurableObject(worker.LIMITS.getByName('dependents'), (_, { storage }) => {
    const dependents = new Dependents(storage);
    for (let i = 0; i < 64; i++) expect(dependents.add(`batch_${i}`, NOW + i)).toBe(true);
    expect([dependents.add('one more', NOW), dependents.add('batch_3', NOW)]).toEqual([false, true]);
    expect(dependents.lastMs(NOW)).toBe(NOW + 63 + 86_400_000);
    expect(dependents.lastMs(NOW + 63 + 86_400_000)).toBeUndefined();
  }));

const id = (n: number) => `batch_${n.toString(16).padStart(24, '0')}`;

test.each([
  ['a text', id(1)],
  ['another name', ['batch_first']],
  ['the same batch twice', [id(1), id(1)]],
  ['17 batches', Array.from({ length: 17 }, (_, i) => id(i))],
  ['an object', [{}]],
])('x_otela.after may not be %s', (_, after) => {
  expect(() => readAfter(after)).toThrow("'x_otela.after' must be a list of at most 16 batch ids");
});

test('a batch names batches of its owner that run, and a chain has at most 32', async () => {
  const db = database(worker as Env);
  const row = { createdBy: 'k', createdAt: NOW, open: true, summary: {} };
  await db.insert(batches).values([
    { ...row, id: id(1), owner: 'project:lab' },
    { ...row, id: id(2), owner: 'project:other' },
  ]);
  let answer: unknown = 30;
  const dropped: string[] = [];
  const stub = { addDependent: async () => answer, dropDependent: async (one: string) => void dropped.push(one) };
  const env = { ...worker, BATCH: { getByName: () => stub } } as unknown as Env;
  const add = (...after: string[]) =>
    addDependencies(env, { id: id(9), owner: 'project:lab', after, windowS: 60 }, NOW);
  expect(await add()).toEqual({});
  expect(await add(id(1))).toEqual({ after: [id(1)], depth: 31 });
  await expect(add(id(1), id(2))).rejects.toMatchObject({ status: 400, message: `There is no batch ${id(2)} here.` });
  // It does not exist yet, so that no batch can need its own results.
  await expect(add(id(9))).rejects.toMatchObject({ status: 400 });
  expect(dropped).toEqual([]);
  answer = 31;
  await expect(add(id(1))).rejects.toMatchObject({ status: 400, message: 'A chain has at most 32 batches.' });
  answer = { refused: 'ended' };
  await expect(add(id(1))).rejects.toMatchObject({ status: 409 });
  answer = { refused: 'full' };
  await expect(add(id(1))).rejects.toMatchObject({ status: 409 });
  expect(dropped).toEqual([id(9), id(9), id(9)]);
});
