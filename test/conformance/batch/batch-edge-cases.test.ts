/**
 * OpenAI's answers to unusual input, through its own client. Each row names the test that covers it:
 *
 * | input                                        | covered by                                                           |
 * | -------------------------------------------- | -------------------------------------------------------------------- |
 * | bad endpoint, window, metadata               | batches.test.ts: is refused at once where its own fields are wrong   |
 * | unknown `input_file_id`                      | batches.test.ts: of a file that does not exist is made, and fails    |
 * | no line parses                               | batches.test.ts: refuse a form with no line that is JSON             |
 * | malformed line; BOM; missing members; url;   | here                                                                 |
 * | stream; model; messages; duplicates; mixed   |                                                                      |
 * | models; empty; more errors than are listed   |                                                                      |
 * | 50,001 lines, a line of 10 MB                | e2e/files/batch-storage.test.ts: more than there may be              |
 * | more than 50,000 inputs of embeddings        | here                                                                 |
 * | a model that the key may not use             | here                                                                 |
 * | cancel of what is over, cancelled, unknown   | batches.test.ts: that is over cannot be cancelled; is cancelled      |
 * | expiry: finished kept, the rest not failed   | e2e/files/batch-clock.test.ts: when the window passes                |
 * | cancel midway                                | batches.test.ts: is cancelled: what has ended stays                  |
 * | a 4xx of the model is a response             | batches.test.ts: keeps an answer 400 of the engine                   |
 * | an empty side has no file                    | batches.test.ts: answers each line once; here                        |
 */
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import * as z from 'zod';
import { endAll, eventually } from '../../support/processes.ts';
import { MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

let cluster: TestCluster;
let client: OpenAI;

beforeAll(async () => {
  cluster = await openTestCluster();
  client = new OpenAI({ baseURL: cluster.base, apiKey: cluster.key, maxRetries: 0 });
});
afterAll(endAll);

const CHAT = '/v1/chat/completions';
const BODY = { model: MODEL, messages: [{ role: 'user', content: 'Hi.' }], max_tokens: 2 };
const line = (id: string, change: object = {}, body: object = {}) => ({
  custom_id: id,
  method: 'POST',
  url: CHAT,
  body: { ...BODY, ...body },
  ...change,
});

async function ended(text: string | Buffer, by = client, endpoint: typeof CHAT | '/v1/embeddings' = CHAT) {
  const file = await by.files.create({ file: await toFile(Buffer.from(text), 'in.jsonl'), purpose: 'batch' });
  const { id } = await by.batches.create({ input_file_id: file.id, endpoint, completion_window: '24h' });
  return eventually('its end', 60_000, async () => {
    const batch = await by.batches.retrieve(id);
    return ['completed', 'failed'].includes(batch.status) ? batch : undefined;
  });
}
const textOf = (lines: readonly unknown[]) =>
  lines.map((one) => (typeof one === 'string' ? one : JSON.stringify(one))).join('\n');
const errorsOf = ({ errors }: OpenAI.Batch) =>
  errors?.data?.map(({ code, param, line: at }) => [code, param ?? null, at ?? null]);

it.each<[string, unknown[], unknown[]]>([
  ['a line that is no JSON', [line('a'), '{"custom_id":'], [['invalid_json_line', null, 2]]],
  [
    'a line that is no object',
    [line('a'), '[1]', '7'],
    [
      ['invalid_json_line', null, 2],
      ['invalid_json_line', null, 3],
    ],
  ],
  [
    'lines without what each must have, one error each',
    [line('a'), {}],
    ['custom_id', 'method', 'url', 'body'].map((name) => ['missing_required_parameter', name, 2]),
  ],
  ['a line for another endpoint', [line('a'), line('b', { url: '/v1/embeddings' })], [['invalid_url', 'url', 2]]],
  ['a line with another method', [line('a'), line('b', { method: 'GET' })], [['invalid_method', 'method', 2]]],
  ['a line that streams', [line('a'), line('b', {}, { stream: true })], [['streaming_unsupported', 'body.stream', 2]]],
  ['a line without a model', [line('a'), line('b', {}, { model: undefined })], [['invalid_request', 'body.model', 2]]],
  [
    'a line without messages',
    [line('a'), line('b', {}, { messages: undefined })],
    [['invalid_request', 'body.messages', 2]],
  ],
  ['an id that comes twice', [line('a'), line('b'), line('a')], [['duplicate_custom_id', 'custom_id', 3]]],
  ['no line', [''], [['empty_file', null, null]]],
])('a file with %s fails, and its errors say where', async (_, lines, errors) => {
  const batch = await ended(textOf(lines));
  expect([batch.status, errorsOf(batch)]).toEqual(['failed', errors]);
  expect([batch.output_file_id, batch.error_file_id]).toEqual([null, null]);
});

it('a mark of the byte order, CR LF, blank lines and a missing last line end are no errors', async () => {
  const text = `\uFEFF${JSON.stringify(line('a'))}\r\n\r\n\n${JSON.stringify(line('b'))}`;
  expect(await ended(text)).toMatchObject({ status: 'completed', request_counts: { total: 2, completed: 2 } });
});

it('a file of bad lines alone has all of its errors up to a bound, and each with its line', async () => {
  const batch = await ended(textOf([line('a'), ...new Array(1_500).fill('nope')]));
  expect(batch.errors?.data).toHaveLength(1_000);
  expect(batch.errors?.data?.at(-1)?.line).toBe(1_001);
});

it('a model that the key may not use is not found', async () => {
  const key = await cluster.gateway.createKey('narrow', { models: ['mine'] });
  const narrow = new OpenAI({ baseURL: cluster.base, apiKey: key, maxRetries: 0 });
  expect(errorsOf(await ended(textOf([line('a')]), narrow))).toEqual([['model_not_found', 'body.model', 1]]);
});

it('more than 50,000 inputs of embeddings are too many, in however few lines', async () => {
  const many = (id: string) => ({
    custom_id: id,
    method: 'POST',
    url: '/v1/embeddings',
    body: { model: MODEL, input: new Array(26_000).fill('x') },
  });
  const batch = await ended(textOf([many('a'), many('b')]), client, '/v1/embeddings');
  expect(errorsOf(batch)).toEqual([['too_many_tasks', 'body.input', null]]);
});

it('a batch whose lines all fail has no output file', async () => {
  const batch = await ended(textOf([line('a', {}, { stand_in: { status: 400 } })]));
  expect(batch).toMatchObject({ status: 'completed', output_file_id: null, request_counts: { failed: 1 } });
  expect(batch.error_file_id).toMatch(/^file-/);
});

const statusOf = (answer: Promise<unknown>) =>
  answer.then(
    () => 200,
    (error: unknown) => (error instanceof OpenAI.APIError ? error.status : error),
  );
const by = async (name: string) =>
  new OpenAI({ baseURL: cluster.base, apiKey: await cluster.gateway.createKey(name), maxRetries: 0 });
const uploadOf = (bytes: number, client: OpenAI, purpose: 'user_data' | 'batch' = 'user_data') =>
  client.uploads.create({ filename: 'f', purpose, bytes, mime_type: 'text/plain' });

it('the input of a batch has 200 MB at most, another file 512 MB', async () => {
  const client = await by('large');
  const most = { batch: 200_000_000, user_data: 512_000_000 } as const;
  for (const purpose of ['batch', 'user_data'] as const) {
    const statuses = [most[purpose], most[purpose] + 1].map((bytes) => statusOf(uploadOf(bytes, client, purpose)));
    expect([purpose, ...(await Promise.all(statuses))]).toEqual([purpose, 200, 413]);
  }
});

it('parts that come at once are no more than their upload declared', async () => {
  const { id } = await uploadOf(4, client);
  const data = () => toFile(Buffer.from('abcd'), 'p');
  const parts = Array.from(
    { length: 6 },
    async () => (await client.uploads.parts.create(id, { data: await data() })).id,
  );
  const taken = (await Promise.allSettled(parts)).flatMap((part) => (part.status === 'fulfilled' ? [part.value] : []));
  expect(taken).toHaveLength(1);
  const ends = [
    ...Array.from({ length: 3 }, () => client.uploads.complete(id, { part_ids: taken })),
    client.uploads.cancel(id),
  ];
  const statuses = await Promise.all(ends.map(statusOf));
  expect(statuses.sort(), 'completed or cancelled, once').toEqual([200, 409, 409, 409]);
});

it('what pending uploads declare counts for the bytes that an owner may have', async () => {
  const client = await by('hoarder');
  const all = Array.from({ length: 42 }, () => uploadOf(512_000_000, client));
  const statuses = await Promise.all(all.map(statusOf));
  expect(statuses.filter((status) => status === 200)).toHaveLength(39);
  expect(statuses.filter((status) => status === 429)).toHaveLength(3);
  const [first] = (await Promise.allSettled(all)).flatMap((one) => (one.status === 'fulfilled' ? [one.value.id] : []));
  await client.uploads.cancel(first ?? '');
  expect(await statusOf(uploadOf(512_000_000, client))).toBe(200);
});

/** Longer than any test: no batch of such lines ends until the test ends it, on however fast a machine. */
const ENDLESS = { stand_in: { delayMs: 3_600_000 } };
const idSchema = z.object({ id: z.string() });
const erasedSchema = z.object({ days_left: z.number() });
const listSchema = z.object({ data: z.array(idSchema) });

it('a deleted person leaves no batch: running ones end, and no list has them', async () => {
  const { gateway, engine } = cluster;
  const user = idSchema.parse(await gateway.admin('POST', 'users', { name: 'Ada' })).id;
  const key = await gateway.createKey('ada', { user_id: user });
  const ada = new OpenAI({ baseURL: cluster.base, apiKey: key, maxRetries: 0 });
  const lines = Array.from({ length: 2_000 }, (_, n) => line(`${n}`, {}, ENDLESS));
  const file = await ada.files.create({ file: await toFile(Buffer.from(textOf(lines)), 'in.jsonl'), purpose: 'batch' });
  const before = engine.requests.length;
  const { id } = await ada.batches.create({ input_file_id: file.id, endpoint: CHAT, completion_window: '24h' });
  await eventually('its lines at the engine', 30_000, () => engine.requests.length > before || undefined);
  const operator = new OpenAI({ baseURL: cluster.base, apiKey: gateway.adminKey, maxRetries: 0 });
  const listed = async () =>
    listSchema.parse(await operator.get('/batches', { query: { scope: 'all', limit: 100 } })).data.map((one) => one.id);
  expect(await listed()).toContain(id);
  await eventually('all of it', 30_000, async () => {
    const { days_left } = erasedSchema.parse(await gateway.admin('DELETE', `users/${user}`));
    return days_left === 0 || undefined;
  });
  expect(await listed()).not.toContain(id);
  expect(await statusOf(operator.batches.retrieve(id))).toBe(404);
  await eventually('its node to stop', 60_000, () => engine.running() === 0 || undefined);
  const asked = engine.requests.length;
  // The node has capacity for other work, and starts only this line.
  expect((await ended(textOf([line('next')]))).status).toBe('completed');
  expect(engine.requests).toHaveLength(asked + 1);
  expect(await listed()).not.toContain(id);
});

it('a project’s batch outlives the person who made it: it is cancelled with their key, and its results are the project’s', async () => {
  const { gateway } = cluster;
  const project = await gateway.createProject('shared');
  const user = idSchema.parse(await gateway.admin('POST', 'users', { name: 'Ada', project_id: project })).id;
  const keys = [
    await gateway.createKey('ada', { user_id: user, project_id: project }),
    await gateway.createKey('other', { project_id: project }),
  ];
  const [ada, other] = keys.map((apiKey) => new OpenAI({ baseURL: cluster.base, apiKey, maxRetries: 0 }));
  if (ada === undefined || other === undefined) throw new Error('two keys');
  // Fewer endless lines than a node runs concurrently: the other lines pass them.
  const lines = Array.from({ length: 150 }, (_, n) => line(`${n}`, {}, n < 100 ? {} : ENDLESS));
  const file = await ada.files.create({ file: await toFile(Buffer.from(textOf(lines)), 'in.jsonl'), purpose: 'batch' });
  const { id } = await ada.batches.create({ input_file_id: file.id, endpoint: CHAT, completion_window: '24h' });
  await eventually('its first lines', 30_000, async () =>
    (await other.batches.retrieve(id)).request_counts?.completed ? true : undefined,
  );
  await gateway.admin('DELETE', `users/${user}`);
  const done = await eventually('its end', 60_000, async () => {
    const batch = await other.batches.retrieve(id);
    return ['in_progress', 'cancelling'].includes(batch.status) ? undefined : batch;
  });
  expect(done.status).toBe('cancelled');
  expect((await other.batches.list()).data.map((one) => one.id)).toEqual([id]);
  expect(await statusOf(other.files.content(done.output_file_id ?? ''))).toBe(200);
});

it('a project has so many files, however small, counted with unfinished uploads and their parts', async () => {
  const most = 5;
  await cluster.gateway.admin('PATCH', 'settings', { files: { count: most } });
  try {
    const client = await by('many');
    const tiny = async () =>
      client.files.create({ file: await toFile(Buffer.from('x'), 'tiny'), purpose: 'user_data' });
    await eventually('the bound', 20_000, async () => ((await statusOf(tiny())) === 429 ? true : undefined));
    const { data } = await client.files.list();
    for (const { id } of data.slice(2)) await client.files.delete(id);
    const upload = await uploadOf(4, client);
    const part = async (text: string) =>
      client.uploads.parts.create(upload.id, { data: await toFile(Buffer.from(text), 'p') });
    expect(await statusOf(part('a'))).toBe(200);
    const last = await Promise.all([tiny(), tiny(), part('b'), uploadOf(1, client)].map(statusOf));
    expect(last.toSorted(), 'four at once for one place').toEqual([200, 429, 429, 429]);
    for (const one of [tiny, () => part('c'), () => uploadOf(1, client)]) {
      const refused = await one().catch((error: unknown) => error);
      expect(refused).toMatchObject({ status: 429, code: 'insufficient_quota', type: 'insufficient_quota' });
      expect(String(refused)).toMatch(new RegExp(`\\b${most}\\b`));
    }
    const shown = await fetch(`${cluster.gateway.url}/admin/me/files`, {
      headers: { authorization: `Bearer ${client.apiKey}` },
    });
    expect(await shown.json()).toMatchObject({ count: { allowed: most, used: most } });
    await client.uploads.cancel(upload.id);
    expect(await statusOf(tiny())).toBe(200);
  } finally {
    await cluster.gateway.admin('PATCH', 'settings', { files: null });
  }
});
