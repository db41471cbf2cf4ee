/** Files, file names and forms that no honest client sends, and batches that name files of others. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import * as z from 'zod';
import { Gateway } from '../../support/gateway.ts';
import { endAll, eventually } from '../../support/processes.ts';

let gateway: Gateway;
let key: string;
let other: string;
beforeAll(async () => {
  gateway = await Gateway.start({ queue: false });
  [key, other] = [await gateway.createKey('mine'), await gateway.createKey('theirs')];
});
afterAll(endAll);

const EDGE = 'edge';
const fileSchema = z.looseObject({ id: z.string(), filename: z.string(), bytes: z.number() });
const ask = (path: string, init: RequestInit = {}, as = key) =>
  fetch(`${gateway.url}${path}`, { ...init, headers: { authorization: `Bearer ${as}`, ...init.headers } });
const upload = (body: string | Buffer, type = `multipart/form-data; boundary=${EDGE}`, as = key) =>
  ask('/v1/files', { method: 'POST', body: Buffer.from(body), headers: { 'content-type': type } }, as);
const part = (head: string, content: string) => `--${EDGE}\r\n${head}\r\n\r\n${content}\r\n`;
const field = (name: string, value: string) => part(`content-disposition: form-data; name="${name}"`, value);
const PURPOSE = field('purpose', 'user_data');
const END = `--${EDGE}--\r\n`;
const named = (filename: string) =>
  `${PURPOSE}${part(`content-disposition: form-data; name="file"; filename="${filename}"`, 'x')}${END}`;
const FILE = part('content-disposition: form-data; name="file"; filename="a.txt"', 'content');

it.each([
  '../../../etc/passwd',
  '/etc/passwd',
  '..\\..\\admin.key',
  'a/../../b',
  'C:\\x',
  '.',
  '',
  'CON',
  'a\u202etxt.exe',
  '\u0000nul',
  '<img src=x onerror=alert(1)>.html',
  "a'b\"; filename*=UTF-8''evil",
  'x; charset=utf-7',
  `${'😀'.repeat(200)}.txt`,
  'é'.repeat(300),
  '%0d%0aset-cookie: x=y',
  '__proto__',
])('a file called %j is a download of bytes under a name of one line, and nothing else', async (filename) => {
  const answer = await upload(named(filename));
  const text = await answer.text();
  if (answer.status === 400) return;
  expect(answer.status, text).toBe(200);
  const { id } = fileSchema.parse(JSON.parse(text));
  const content = await ask(`/v1/files/${id}/content`);
  expect(await content.text()).toBe('x');
  expect(content.headers.get('content-disposition')).toMatch(/^attachment; filename\*=UTF-8''[\w.!~*'()%-]*$/);
  expect(content.headers.get('content-type')).toBe('application/octet-stream');
  expect(content.headers.get('x-content-type-options')).toBe('nosniff');
  expect(content.headers.get('set-cookie')).toBeNull();
  expect((await ask(`/v1/files/${id}`, { method: 'DELETE' })).status).toBe(200);
});

it.each<[string, string | Buffer, string?]>([
  ['no boundary', FILE, 'multipart/form-data'],
  ['an empty boundary', FILE, 'multipart/form-data; boundary='],
  ['another boundary', FILE + PURPOSE + END, 'multipart/form-data; boundary=other'],
  ['a boundary of 10,000 characters', FILE, `multipart/form-data; boundary=${'b'.repeat(10_000)}`],
  ['no form', '{}', 'application/json'],
  ['another kind of form', 'purpose=batch', 'application/x-www-form-urlencoded'],
  ['a form within the form', FILE, `multipart/mixed; boundary=${EDGE}`],
  ['no end', FILE + PURPOSE],
  ['an end within its file', FILE.slice(0, -8)],
  ['an end within a head', `--${EDGE}\r\ncontent-dispo`],
  ['nothing', ''],
  ['its end alone', END],
  ['no file', PURPOSE + END],
  ['two files', FILE + FILE + PURPOSE + END],
  ['no purpose', FILE + END],
  ['a purpose of 5,000 characters', FILE + field('purpose', 'x'.repeat(5_000)) + END],
  ['a purpose that only outputs have', FILE + field('purpose', 'batch_output') + END],
  ['a purpose of JavaScript’s own', FILE + field('purpose', '__proto__') + END],
  ['a hundred fields', field('x', 'y').repeat(100) + FILE + PURPOSE + END],
  [
    'a head of 100 KiB',
    part(`content-disposition: form-data; name="file"; x="${'x'.repeat(102_400)}"`, 'x') + PURPOSE + END,
  ],
  ['a head without a colon', `--${EDGE}\r\nnonsense\r\n\r\nx\r\n${PURPOSE}${END}`],
  [
    'an end of life before now',
    FILE + PURPOSE + field('expires_after[anchor]', 'created_at') + field('expires_after[seconds]', '-1') + END,
  ],
  [
    'an end of life in words',
    FILE + PURPOSE + field('expires_after[anchor]', 'created_at') + field('expires_after[seconds]', '1e9') + END,
  ],
])('a form with %s is refused, and leaves no file', async (_, body, type) => {
  const before = await ask('/v1/files').then((answer) => answer.json());
  const answer = await upload(body, type);
  expect(answer.status, await answer.text()).toBe(400);
  expect(await ask('/v1/files').then((listed) => listed.json())).toEqual(before);
});

it.each([
  ['../../../admin.key'],
  ['..%2f..%2fadmin.key'],
  ['%2e%2e%2fadmin.key'],
  ['file-%00'],
  ['__proto__'],
  ['file-*'],
  ["x' OR '1'='1"],
  ['x'.repeat(5_000)],
])('no file is found by %j', async (id) => {
  for (const path of [`/v1/files/${id}`, `/v1/files/${id}/content`]) {
    const answer = await ask(path);
    expect([400, 404]).toContain(answer.status);
    expect(await answer.text()).not.toMatch(/[0-9a-f]{64}|sk-otela/);
  }
});

it('parts of a file that are asked for are the whole or that part, and never more', async () => {
  const { id } = fileSchema.parse(await (await upload(FILE + PURPOSE + END)).json());
  for (const range of [
    'bytes=0-1',
    'bytes=-3',
    'bytes=5-',
    'bytes=9-99',
    'bytes=1-0',
    'bytes=0-0,2-3',
    'bytes=0-1e9',
    'lines=0-1',
  ]) {
    const answer = await ask(`/v1/files/${id}/content`, { headers: { range } });
    expect([200, 206, 416], range).toContain(answer.status);
    const text = await answer.text();
    if (answer.status === 200) expect(text).toBe('content');
  }
});

const batchSchema = z.looseObject({ id: z.string(), status: z.string(), errors: z.unknown() });
const jsonl = async (content: string | Buffer, as = key) => {
  const head = part('content-disposition: form-data; name="file"; filename="a.jsonl"', '\u0001').split('\u0001');
  const body = Buffer.concat([
    Buffer.from(field('purpose', 'batch') + head[0]),
    Buffer.from(content),
    Buffer.from(head[1] + END),
  ]);
  const answer = await upload(body, undefined, as);
  return answer.status === 200 ? fileSchema.parse(await answer.json()).id : undefined;
};
const create = (body: object, as = key) =>
  ask(
    '/v1/batches',
    { method: 'POST', body: JSON.stringify(body), headers: { 'content-type': 'application/json' } },
    as,
  );
const ENDPOINT = '/v1/chat/completions';
const ended = (id: string) =>
  eventually('its end', 20_000, async () => {
    const now = batchSchema.parse(await (await ask(`/v1/batches/${id}`)).json());
    return ['failed', 'completed', 'in_progress'].includes(now.status) ? now : undefined;
  });
const line = (more: object = {}) =>
  JSON.stringify({ custom_id: 'a', method: 'POST', url: ENDPOINT, body: { model: 'm', messages: [] }, ...more });

it.each<[string, string | Buffer]>([
  ['the address of another host', line({ url: `http://169.254.169.254${ENDPOINT}` })],
  ['the address of a host without its scheme', line({ url: `//evil.example${ENDPOINT}` })],
  ['an address of operators', line({ url: '/admin/keys' })],
  ['an address with a way out', line({ url: `${ENDPOINT}/../../admin/keys` })],
  ['an address with a question', line({ url: `${ENDPOINT}?x=1` })],
  ['another method', line({ method: 'DELETE' })],
  ['a method with a line’s end', line({ method: 'POST\r\nx: y' })],
  ['a body that is text', line({ body: '{"model":"m"}' })],
  ['a body that is a list', line({ body: [] })],
  ['no body', line({ body: undefined })],
  ['no name', line({ custom_id: undefined })],
  ['a number as its name', line({ custom_id: 1 })],
  ['the name of another line', `${line()}\n${line()}`],
  ['a model that is a list', line({ body: { model: ['m'], messages: [] } })],
  [
    'a model in its prototype',
    '{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{"__proto__":{"model":"m"}}}',
  ],
  [
    'deep JSON',
    `{"custom_id":"a","method":"POST","url":"${ENDPOINT}","body":{"model":"m","messages":${'['.repeat(50_000)}${']'.repeat(50_000)}}}`,
  ],
  [
    'half a character',
    Buffer.concat([Buffer.from(line().slice(0, 20)), Buffer.from([0xc3]), Buffer.from(line().slice(20))]),
  ],
  ['a list of lines', `[${line()}]`],
  ['no JSON', 'hello'],
  ['nothing', ''],
])('a line with %s fails its batch, which ends', async (_, content) => {
  const id = await jsonl(content);
  if (id === undefined) return;
  const made = await create({ input_file_id: id, endpoint: ENDPOINT, completion_window: '24h' });
  if (made.status === 400) return;
  const { status, errors } = await ended(batchSchema.parse(await made.json()).id);
  expect(status, JSON.stringify(errors)).toBe('failed');
});

it.each<[string, (mine: string, theirs: string) => object]>([
  ['another owner’s file', (_, theirs) => ({ input_file_id: theirs })],
  ['no file', () => ({})],
  ['a list of files', (mine) => ({ input_file_id: [mine] })],
  ['a path', () => ({ input_file_id: '../admin.key' })],
  ['an endpoint of operators', (mine) => ({ input_file_id: mine, endpoint: '/admin/keys' })],
  ['an endpoint with a way out', (mine) => ({ input_file_id: mine, endpoint: '/v1/../admin/keys' })],
  ['another window', (mine) => ({ input_file_id: mine, completion_window: '100y' })],
  ['deep metadata', (mine) => ({ input_file_id: mine, metadata: { a: { b: {} } } })],
  [
    'much metadata',
    (mine) => ({
      input_file_id: mine,
      metadata: Object.fromEntries(Array.from({ length: 17 }, (_, n) => [`k${n}`, 'v'])),
    }),
  ],
  ['long metadata', (mine) => ({ input_file_id: mine, metadata: { a: 'x'.repeat(10_000) } })],
])('no batch is made of %s', async (_, body) => {
  const [mine = '', theirs = ''] = [await jsonl(line()), await jsonl(line(), other)];
  const answer = await create({ endpoint: ENDPOINT, completion_window: '24h', ...body(mine, theirs) });
  const text = await answer.text();
  if (answer.status === 200) expect((await ended(batchSchema.parse(JSON.parse(text)).id)).status).toBe('failed');
  else expect([400, 404], text).toContain(answer.status);
});

it('batches, uploads and files of another owner are not there: not read, not cancelled, not listed', async () => {
  const input = await jsonl(line(), other);
  const made = await create({ input_file_id: input, endpoint: ENDPOINT, completion_window: '24h' }, other);
  const { id } = batchSchema.parse(await made.json());
  const begun = await ask(
    '/v1/uploads',
    { method: 'POST', body: JSON.stringify({ filename: 'a', purpose: 'user_data', bytes: 1 }) },
    other,
  );
  const { id: uploaded } = z.object({ id: z.string() }).parse(await begun.json());
  for (const [method, path] of [
    ['GET', `/v1/batches/${id}`],
    ['POST', `/v1/batches/${id}/cancel`],
    ['GET', `/v1/files/${input}`],
    ['GET', `/v1/files/${input}/content`],
    ['DELETE', `/v1/files/${input}`],
    ['POST', `/v1/uploads/${uploaded}/cancel`],
    ['POST', `/v1/uploads/${uploaded}/complete`],
    ['GET', `/v1/files?after=${input}`],
    ['GET', `/v1/batches?after=${id}`],
  ] as const) {
    const body = method === 'POST' ? '{"part_ids":["part_x"]}' : undefined;
    expect((await ask(path, { method, ...(body !== undefined && { body }) })).status, `${method} ${path}`).toBe(404);
  }
  for (const path of ['/v1/files?limit=10000', '/v1/batches?limit=100'])
    expect(await (await ask(path)).text()).not.toMatch(new RegExp(`${input}|${id}`));
});
