/** OpenAI's Files and Batch APIs, through OpenAI's own client. */
import { createHash } from 'node:crypto';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { endAll, eventually } from '../../support/processes.ts';
import { MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

const OTHER_MODEL = 'stand-in/model-2';
let cluster: TestCluster;
let client: OpenAI;

beforeAll(async () => {
  cluster = await openTestCluster({ engine: { models: [MODEL, OTHER_MODEL] } });
  client = new OpenAI({ baseURL: cluster.base, apiKey: cluster.key, maxRetries: 0 });
});
afterAll(endAll);

const ENDPOINT = '/v1/chat/completions';
const line = (id: string, change: Record<string, unknown> = {}) =>
  JSON.stringify({
    custom_id: id,
    method: 'POST',
    url: ENDPOINT,
    body: { model: MODEL, messages: [{ role: 'user', content: `Say ${id}.` }], max_tokens: 2, ...change },
  });
async function upload(lines: readonly string[]): Promise<string> {
  const file = await client.files.create({
    file: await toFile(Buffer.from(lines.join('\n')), 'in.jsonl'),
    purpose: 'batch',
  });
  return file.id;
}
async function made(lines: readonly string[]) {
  return client.batches.create({ input_file_id: await upload(lines), endpoint: ENDPOINT, completion_window: '24h' });
}
const ended = (id: string, withinMs = 30_000) =>
  eventually('the batch has ended', withinMs, async () => {
    const batch = await client.batches.retrieve(id);
    return ['completed', 'failed', 'expired', 'cancelled'].includes(batch.status) ? batch : undefined;
  });
async function linesOf(file: string | null | undefined) {
  if (file === null || file === undefined) return [];
  const text = await (await client.files.content(file)).text();
  return text
    .trimEnd()
    .split('\n')
    .map((one) => JSON.parse(one));
}
const refused = (act: Promise<unknown>) =>
  act.then(
    () => 'taken',
    (error: unknown) =>
      error instanceof OpenAI.APIError ? { status: error.status, code: error.code, param: error.param } : error,
  );

describe('files', () => {
  it('are made, shown, listed, read and deleted', async () => {
    const text = `${line('a')}\n`;
    const file = await client.files.create({ file: await toFile(Buffer.from(text), 'mine.jsonl'), purpose: 'batch' });
    expect(file).toMatchObject({
      object: 'file',
      bytes: text.length,
      filename: 'mine.jsonl',
      purpose: 'batch',
      status: 'processed',
    });
    expect(await client.files.retrieve(file.id)).toEqual(file);
    expect((await client.files.list({ purpose: 'batch' })).data.map(({ id }) => id)).toContain(file.id);
    expect(await (await client.files.content(file.id)).text()).toBe(text);
    expect(await client.files.delete(file.id)).toEqual({ id: file.id, object: 'file', deleted: true });
    expect(await refused(client.files.retrieve(file.id))).toMatchObject({ status: 404 });
  });

  it('are listed page by page, each once', async () => {
    const ids = [];
    for (let i = 0; i < 5; i++) ids.push(await upload([line(`${i}`)]));
    const seen: string[] = [];
    for await (const file of client.files.list({ limit: 2, order: 'asc' })) seen.push(file.id);
    expect(new Set(seen).size).toBe(seen.length);
    expect(seen).toEqual(expect.arrayContaining(ids));
  });

  it('take the file before or after the fields of the form', async () => {
    const boundary = 'b';
    const part = (head: string, body: string) =>
      `--${boundary}\r\ncontent-disposition: form-data; ${head}\r\n\r\n${body}\r\n`;
    for (const parts of [
      [part('name="purpose"', 'batch'), part('name="file"; filename="f.jsonl"', line('a'))],
      [part('name="file"; filename="f.jsonl"', line('a')), part('name="purpose"', 'batch')],
    ]) {
      const response = await fetch(`${cluster.base}/files`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${cluster.key}`,
          'content-type': `multipart/form-data; boundary=${boundary}`,
        },
        body: `${parts.join('')}--${boundary}--\r\n`,
      });
      expect([response.status, await response.json()]).toMatchObject([200, { filename: 'f.jsonl', purpose: 'batch' }]);
    }
  });

  it.each([
    ['no file', 'content-disposition: form-data; name="purpose"\r\n\r\nbatch', 'invalid_request'],
    ['no purpose', 'content-disposition: form-data; name="file"; filename="f"\r\n\r\n{}', 'invalid_request'],
    [
      'a purpose that is none',
      'content-disposition: form-data; name="file"; filename="f"\r\n\r\n{}\r\n--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nnope',
      'invalid_request',
    ],
    [
      'no line that is JSON',
      'content-disposition: form-data; name="file"; filename="f"\r\n\r\nnope\r\n--b\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch',
      'invalid_request',
    ],
  ])('refuse a form with %s', async (_, part, code) => {
    const response = await fetch(`${cluster.base}/files`, {
      method: 'POST',
      headers: { authorization: `Bearer ${cluster.key}`, 'content-type': 'multipart/form-data; boundary=b' },
      body: `--b\r\n${part}\r\n--b--\r\n`,
    });
    expect([response.status, await response.json()]).toMatchObject([400, { error: { code } }]);
  });

  it('refuse a form that ends early', async () => {
    const response = await fetch(`${cluster.base}/files`, {
      method: 'POST',
      headers: { authorization: `Bearer ${cluster.key}`, 'content-type': 'multipart/form-data; boundary=b' },
      body: '--b\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n{}',
    });
    expect(response.status).toBe(400);
  });
});

describe('a batch', () => {
  it('answers each line once, with usage, in an output file', async () => {
    const ids = Array.from({ length: 250 }, (_, i) => `line-${i}`);
    const batch = await made(ids.map((id) => line(id)));
    expect(batch).toMatchObject({ object: 'batch', endpoint: ENDPOINT, completion_window: '24h', errors: null });
    const done = await ended(batch.id);
    expect(done).toMatchObject({
      status: 'completed',
      model: MODEL,
      request_counts: { total: 250, completed: 250, failed: 0 },
      error_file_id: null,
    });
    const output = await linesOf(done.output_file_id);
    expect(output.map(({ custom_id }) => custom_id).sort()).toEqual([...ids].sort());
    expect(output[0]).toMatchObject({
      error: null,
      response: { status_code: 200, body: { object: 'chat.completion' } },
    });
    expect(done.usage?.output_tokens).toBe(500);
    expect((await client.files.retrieve(done.output_file_id ?? '')).purpose).toBe('batch_output');
    const times = [done.created_at, done.in_progress_at ?? 0, done.finalizing_at ?? 0, done.completed_at ?? 0];
    expect(times).toEqual([...times].sort((a, b) => a - b));
  });

  it('may name several models, and names none then', async () => {
    const lines = ['a', 'b', 'c'].map((id, i) => line(id, { model: i === 1 ? OTHER_MODEL : MODEL }));
    const done = await ended((await made(lines)).id);
    expect(done).toMatchObject({ status: 'completed', model: null, request_counts: { total: 3, completed: 3 } });
    const models = (await linesOf(done.output_file_id)).map(({ custom_id: id, response }) => [id, response.body.model]);
    expect(models.sort()).toEqual([
      ['a', MODEL],
      ['b', OTHER_MODEL],
      ['c', MODEL],
    ]);
  });

  it.each([
    ['/v1/rerank', { query: 'q', documents: ['one', 'two'] }, { results: [{}, {}] }],
    ['/v1/score', { text_1: 'a', text_2: ['b', 'c'] }, { data: [{}, {}] }],
    ['/v1/audio/transcriptions', { file_url: 'data:audio/wav;base64,UklGRg==' }, { text: expect.any(String) }],
  ])('runs lines of %s', async (endpoint, members, answer) => {
    const asked = JSON.stringify({
      custom_id: 'a',
      method: 'POST',
      url: endpoint,
      body: { model: MODEL, ...members },
    });
    const batch = await client.batches.create({
      input_file_id: await upload([asked]),
      endpoint: endpoint as typeof ENDPOINT,
      completion_window: '24h',
    });
    const done = await ended(batch.id);
    expect(await linesOf(done.output_file_id)).toMatchObject([{ custom_id: 'a', response: { body: answer } }]);
  });

  it('keeps an answer 400 of the engine as a response in the error file', async () => {
    const done = await ended((await made([line('good'), line('bad', { stand_in: { status: 400 } })])).id);
    expect(done.request_counts).toEqual({ total: 2, completed: 1, failed: 1 });
    expect(await linesOf(done.error_file_id)).toMatchObject([
      { custom_id: 'bad', error: null, response: { status_code: 400 } },
    ]);
    expect(await linesOf(done.output_file_id)).toMatchObject([{ custom_id: 'good' }]);
  });

  it('fails with every error of its lines', async () => {
    const done = await ended((await made([line('a'), 'nope', line('a'), line('b', { stream: true })])).id);
    expect(done.status).toBe('failed');
    expect(done.errors?.data?.map(({ code, line: at }) => [code, at])).toEqual([
      ['invalid_json_line', 2],
      ['duplicate_custom_id', 3],
      ['streaming_unsupported', 4],
    ]);
    expect([done.output_file_id, done.error_file_id]).toEqual([null, null]);
  });

  it('of a file that does not exist is made, and fails', async () => {
    const batch = await client.batches.create({
      input_file_id: 'file-unknown',
      endpoint: ENDPOINT,
      completion_window: '24h',
    });
    expect((await ended(batch.id)).errors?.data).toMatchObject([
      { code: 'invalid_request', param: 'file_id', line: null },
    ]);
  });

  it('is refused at once where its own fields are wrong', async () => {
    const input = await upload([line('a')]);
    const create = (change: Record<string, unknown>) =>
      refused(
        client.batches.create({
          input_file_id: input,
          endpoint: ENDPOINT,
          completion_window: '24h',
          ...change,
        } as never),
      );
    expect(await create({ endpoint: '/v1/nope' })).toEqual({ status: 400, code: 'invalid_value', param: 'endpoint' });
    for (const completion_window of ['30m', '0h', '31d', '721h', '1e2d', '', 24])
      expect(await create({ completion_window })).toEqual({
        status: 400,
        code: 'invalid_value',
        param: 'completion_window',
      });
    expect(await create({ metadata: { a: 1 } })).toEqual({ status: 400, code: 'invalid_type', param: 'metadata' });
    expect(await create({ input_file_id: undefined })).toMatchObject({ status: 400, param: 'input_file_id' });
  });

  it('are no way round the list of endpoints that a key may call', async () => {
    const key = await cluster.gateway.createKey('embeds', { endpoints: ['embeddings'] });
    const theirs = new OpenAI({ baseURL: cluster.base, apiKey: key, maxRetries: 0 });
    for (const endpoint of [ENDPOINT, '/v1/otela/functions']) {
      const batch = {
        input_file_id: 'file-x',
        endpoint: endpoint as typeof ENDPOINT,
        completion_window: '24h' as const,
      };
      expect(await refused(theirs.batches.create(batch))).toMatchObject({ status: 403, code: 'permission_denied' });
    }
    const calls = await cluster.gateway.createKey('calls', { endpoints: ['otela/functions'] });
    const mine = new OpenAI({ baseURL: cluster.base, apiKey: calls, maxRetries: 0 });
    const functions = { input_file_id: 'file-x', endpoint: '/v1/otela/functions' as typeof ENDPOINT };
    expect(await mine.batches.create({ ...functions, completion_window: '24h' })).toMatchObject({ object: 'batch' });
  });

  it.each(['batches', 'uploads'])(
    '%s: a body larger than any that is meant is 413, and no JSON is 400',
    async (route) => {
      const post = (body: string) => cluster.ask(`/v1/${route}`, body);
      // Above the limit of 64 KiB, and short enough for the socket buffers: it is refused before it is read.
      expect((await post(JSON.stringify({ filename: 'x'.repeat(100_000) }))).status).toBe(413);
      expect((await post('{"a":')).status).toBe(400);
      expect((await post('[]')).status).toBe(400);
    },
  );

  it('is cancelled: what has ended stays, the rest says so, and a second cancel changes nothing', async () => {
    const batch = await made(Array.from({ length: 300 }, (_, i) => line(`${i}`, { max_tokens: 50 })));
    await client.batches.cancel(batch.id);
    const done = await ended(batch.id, 60_000);
    expect(done.status).toBe('cancelled');
    const { total, completed } = done.request_counts ?? { total: 0, completed: 0 };
    const [output, errors] = [await linesOf(done.output_file_id), await linesOf(done.error_file_id)];
    expect([output.length, output.length + errors.length]).toEqual([completed, total]);
    expect(await client.batches.cancel(batch.id)).toMatchObject({ status: 'cancelled' });
  });

  it('that is over cannot be cancelled, and one that is none is not found', async () => {
    const done = await ended((await made([line('a')])).id);
    expect(await refused(client.batches.cancel(done.id))).toMatchObject({ status: 409 });
    expect(await refused(client.batches.retrieve('batch_none'))).toMatchObject({ status: 404 });
  });

  it('is listed, newest first, page by page', async () => {
    const seen: string[] = [];
    for await (const batch of client.batches.list({ limit: 2 })) seen.push(batch.id);
    expect(new Set(seen).size).toBe(seen.length);
    expect(seen.length).toBeGreaterThan(5);
  });

  it('of anybody is seen and cancelled by operators, who read no file of it; others are refused', async () => {
    const batch = await made([line('theirs')]);
    await ended(batch.id);
    const operator = new OpenAI({ baseURL: cluster.base, apiKey: cluster.gateway.adminKey, maxRetries: 0 });
    const all = await operator.get<{ data: { id: string; x_otela: { owner?: string } }[] }>('/batches', {
      query: { scope: 'all' },
    });
    expect(all.data.find(({ id }) => id === batch.id)?.x_otela.owner).toMatch(/^(key|user|project):/);
    expect((await operator.batches.list()).data.map(({ id }) => id)).not.toContain(batch.id);
    const seen = await operator.batches.retrieve(batch.id);
    expect(await refused(operator.files.content(seen.output_file_id ?? ''))).toMatchObject({ status: 404 });
    expect(await refused(client.get('/batches', { query: { scope: 'all' } }))).toMatchObject({ status: 403 });
    expect(await refused(operator.get('/batches', { query: { scope: 'mine' } }))).toMatchObject({ status: 400 });
  });

  it('keeps the file that it reads until it is over', async () => {
    const batch = await made([line('a')]);
    await ended(batch.id);
    expect(await client.files.delete(batch.input_file_id)).toMatchObject({ deleted: true });
  });
});

describe('an upload in parts', () => {
  const begin = (bytes: number) =>
    client.uploads.create({ filename: 'parts.jsonl', purpose: 'batch', bytes, mime_type: 'application/jsonl' });
  const part = async (upload: string, text: string) =>
    (await client.uploads.parts.create(upload, { data: await toFile(Buffer.from(text), 'p') })).id;

  it('becomes one file, in the order that the client names', async () => {
    const [first, second] = [`${line('a')}\n`, line('b')];
    const upload = await begin(first.length + second.length);
    const [b, a] = [await part(upload.id, second), await part(upload.id, first)];
    const done = await client.uploads.complete(upload.id, { part_ids: [a, b] });
    expect(done).toMatchObject({ status: 'completed', file: { purpose: 'batch', filename: 'parts.jsonl' } });
    expect(await (await client.files.content(done.file?.id ?? '')).text()).toBe(first + second);
    expect(await refused(client.uploads.complete(upload.id, { part_ids: [a, b] }))).toMatchObject({ status: 409 });
  });

  it('is refused with other bytes than declared, and can be cancelled', async () => {
    const upload = await begin(5);
    const id = await part(upload.id, '123');
    expect(await refused(client.uploads.complete(upload.id, { part_ids: [id] }))).toMatchObject({
      status: 400,
      param: 'part_ids',
    });
    expect(await refused(part(upload.id, '45678'))).toMatchObject({ status: 413 });
    expect(await client.uploads.cancel(upload.id)).toMatchObject({ status: 'cancelled' });
    expect(await refused(part(upload.id, '45'))).toMatchObject({ status: 409 });
  });

  it('is refused with another MD5 than its parts have, and can be completed with the right one', async () => {
    const text = line('a');
    const upload = await begin(text.length);
    const part_ids = [await part(upload.id, text)];
    const md5 = (of: string) => createHash('md5').update(of).digest('hex');
    expect(await refused(client.uploads.complete(upload.id, { part_ids, md5: md5('other') }))).toMatchObject({
      status: 400,
      param: 'md5',
    });
    expect(await client.uploads.complete(upload.id, { part_ids, md5: md5(text) })).toMatchObject({
      status: 'completed',
    });
  });

  it('above a batch’s 200 MB is refused when it is declared', async () => {
    expect(await refused(begin(200_000_001))).toMatchObject({ status: 413, param: 'bytes' });
  });
});

describe('/openapi.json', () => {
  it('describes what files, uploads and batches really answer', async () => {
    const { paths } = z
      .object({ paths: z.record(z.string(), z.record(z.string(), z.looseObject({ responses: z.unknown() }))) })
      .parse(await (await fetch(`${cluster.gateway.url}/openapi.json`)).json());
    const schemaOf = (method: string, path: string) => {
      const { schema } = z
        .object({ '200': z.object({ content: z.object({ 'application/json': z.object({ schema: z.any() }) }) }) })
        .parse(paths[path]?.[method]?.responses)['200'].content['application/json'];
      return z.fromJSONSchema(schema);
    };
    const ask = async (method: string, path: string, body?: object) => {
      const headers = { authorization: `Bearer ${cluster.key}`, 'content-type': 'application/json' };
      const response = await fetch(`${cluster.gateway.url}${path}`, { method, headers, body: JSON.stringify(body) });
      expect(response.status, path).toBe(200);
      return response.json();
    };
    const fits = async (method: string, path: string, id = '', body?: object) => {
      const answer = await ask(method, path.replace('{id}', id), body);
      expect(schemaOf(method, path).safeParse(answer).error?.issues, `${method} ${path}`).toBeUndefined();
      return answer as { id: string };
    };
    const input_file_id = await upload([line('a'), line('b', { stand_in: { status: 400 } })]);
    const batch = await fits('post', '/v1/batches', '', {
      input_file_id,
      endpoint: ENDPOINT,
      completion_window: '24h',
    });
    await ended(batch.id);
    await ended((await made(['nope'.repeat(3), line('a')])).id);
    await fits('get', '/v1/batches/{id}', batch.id);
    await fits('get', '/v1/batches');
    await fits('get', '/v1/files');
    await fits('get', '/v1/files/{id}', input_file_id);
    const { id } = await fits('post', '/v1/uploads', '', { filename: 'f', purpose: 'batch', bytes: 1 });
    await fits('post', '/v1/uploads/{id}/cancel', id);
    await fits('delete', '/v1/files/{id}', input_file_id);
    // A response of one route does not match the schema of another, so the schemas do reject.
    expect(schemaOf('get', '/v1/batches/{id}').safeParse({ id: 'x' }).success).toBe(false);
  });
});
