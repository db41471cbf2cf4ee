/** An owner's quota also holds while bytes are arriving: the test decides when the store accepts a file. */
import { env as worker } from 'cloudflare:workers';
import { beforeAll, expect, onTestFinished, test, vi } from 'vitest';
import { z } from 'zod';
import { app } from '../../../gateway/app.ts';
import type { Env } from '../../../gateway/env.ts';
import type { FileStore } from '../../../gateway/files/file-store.ts';
import { seedKey } from '../accounts/seed.ts';

let key = '';
beforeAll(async () => {
  ({ key } = await seedKey('consumer'));
});

const background = {
  waitUntil: (work: Promise<unknown>) => void work.catch(() => {}),
  passThroughOnException: () => {},
};

/** A store that holds each file until `open` is called. */
function heldStore() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  const at = { now: 0, most: 0, asked: 0, deleted: 0 };
  let came = () => {};
  const files = {
    put: async (_: string, content: AsyncIterable<Uint8Array>) => {
      at.now++;
      at.asked++;
      at.most = Math.max(at.most, at.now);
      came();
      await opened;
      let bytes = 0;
      for await (const piece of content) bytes += piece.length;
      at.now--;
      return { bytes };
    },
    async *content() {
      yield new TextEncoder().encode('abcd');
    },
    read: async () => files.content(),
    delete: async () => void at.deleted++,
  };
  /** Waits until `count` files are arriving. */
  const until = async (count: number) => {
    while (at.asked < count) await new Promise<void>((resolve) => (came = resolve));
  };
  return { env: { ...worker, FILES: files as unknown as FileStore } as unknown as Env, at, open, until };
}

const FORM = ['--b', 'content-disposition: form-data; name="purpose"', '', 'user_data', '--b'];
const PART = (name: string) => [
  `content-disposition: form-data; name="${name}"; filename="f"`,
  '',
  'abcd',
  '--b--',
  '',
];
const sends = (env: Env, path: string, body: string, headers: Record<string, string>) =>
  Promise.resolve(
    app.fetch(
      new Request(`https://gateway.test/v1${path}`, {
        method: 'POST',
        body,
        headers: { authorization: `Bearer ${key}`, ...headers },
      }),
      env,
      background as unknown as ExecutionContext,
    ),
  );
const form = { 'content-type': 'multipart/form-data; boundary=b' };
const json = { 'content-type': 'application/json' };
const idSchema = z.looseObject({ id: z.string() });
const made = async (answer: Promise<Response>) => idSchema.parse(await (await answer).json()).id;

test('of files that come at once no more are taken in than their owner has room for', async () => {
  const { env, at, open, until } = heldStore();
  const text = [...FORM, ...PART('file')].join('\r\n');
  const claims = { ...form, 'content-length': '512000000' };
  // 20 GB are allowed: 39 files of 512 MB, and one for the rest.
  const taken = Array.from({ length: 40 }, () => sends(env, '/files', text, claims));
  await until(40);
  for (let i = 0; i < 3; i++) expect((await sends(env, '/files', text, claims)).status).toBe(429);
  open();
  expect(new Set((await Promise.all(taken)).map(({ status }) => status))).toEqual(new Set([200]));
  expect(at.asked).toBe(40);
  // Less arrived than was announced, so there is space again.
  expect((await sends(env, '/files', text, claims)).status).toBe(200);
});

test('of parts that come at once no more are taken in than their upload declared', async () => {
  const { env, at, open, until } = heldStore();
  const declares = { filename: 'f', purpose: 'user_data', bytes: 100_000_000, mime_type: 'text/plain' };
  const id = await made(sends(env, '/uploads', JSON.stringify(declares), json));
  const text = ['--b', ...PART('data')].join('\r\n');
  const part = () => sends(env, `/uploads/${id}/parts`, text, { ...form, 'content-length': '50000000' });
  // Two for the content, and one for the framing around it.
  const first = [part(), part(), part()];
  await until(3);
  for (let i = 0; i < 3; i++) expect((await part()).status).toBe(400);
  expect(at.asked).toBe(3);
  open();
  for (const answer of first) expect((await answer).status).toBe(200);
});

test('an upload names each part once, and one upload of an owner is joined at a time', async () => {
  const { env, at, open, until } = heldStore();
  const begin = async () => {
    const declares = { filename: 'f', purpose: 'user_data', bytes: 4, mime_type: 'text/plain' };
    const id = await made(sends(env, '/uploads', JSON.stringify(declares), json));
    return { id };
  };
  const uploads = [await begin(), await begin(), await begin()];
  const store = heldStore();
  store.open();
  const parts: string[] = [];
  for (const { id } of uploads)
    parts.push(await made(sends(store.env, `/uploads/${id}/parts`, ['--b', ...PART('data')].join('\r\n'), form)));
  const complete = (i: number, ids = [parts[i]]) =>
    sends(env, `/uploads/${uploads[i]?.id}/complete`, JSON.stringify({ part_ids: ids }), json);
  expect((await complete(0, [parts[0], parts[0]])).status).toBe(400);
  expect(at.asked).toBe(0);
  const done = [complete(0), complete(0), complete(1), complete(2)];
  await until(1);
  open();
  const statuses = (await Promise.all(done)).map(({ status }) => status);
  expect(statuses.sort()).toEqual([200, 200, 200, 409]);
  expect([at.most, at.asked]).toEqual([1, 3]);
});

test('an upload is completed or canceled although the rows of its parts cannot be deleted now', async () => {
  const { env, open } = heldStore();
  open();
  const declares = { filename: 'f', purpose: 'user_data', bytes: 4, mime_type: 'text/plain' };
  const begin = async () => {
    const id = await made(sends(env, '/uploads', JSON.stringify(declares), json));
    return [id, await made(sends(env, `/uploads/${id}/parts`, ['--b', ...PART('data')].join('\r\n'), form))];
  };
  const [[one, part], [other]] = [await begin(), await begin()];
  vi.spyOn(console, 'error').mockImplementation(() => {});
  const keeps = `CREATE TRIGGER keeps BEFORE DELETE ON upload_parts BEGIN SELECT RAISE(ABORT, 'kept'); END`;
  await worker.DB.prepare(keeps).run();
  onTestFinished(async () => void (await worker.DB.prepare('DROP TRIGGER keeps').run()));
  const completed = await sends(env, `/uploads/${one}/complete`, JSON.stringify({ part_ids: [part] }), json);
  expect(await completed.json()).toMatchObject({ status: 'completed', file: { bytes: 4 } });
  expect((await sends(env, `/uploads/${other}/cancel`, '', json)).status).toBe(200);
});
