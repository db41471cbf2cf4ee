/** Lists that are read while their files are deleted, and downloads that break off. */
import { env } from 'cloudflare:workers';
import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { database } from '../../../gateway/accounts/database.ts';
import { deletedFiles } from '../../../gateway/files/file-tables.ts';
import { FILE_SWEEP_NAME } from '../../../gateway/files/sweep-object.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock, refusal } from '../admin/support.ts';
import { runDurableObjectAlarm } from '../support/durable.ts';

let key = '';
let other = '';
beforeAll(async () => {
  ({ key } = await seedKey('consumer'));
  other = (await seedKey('consumer')).key;
});

const idSchema = z.looseObject({ id: z.string() });
const pageSchema = z.looseObject({ data: z.array(idSchema), has_more: z.boolean() });

async function stored(text: string): Promise<string> {
  const named = (name: string) => `--b\r\ncontent-disposition: form-data; name="${name}"`;
  const body = `${named('purpose')}\r\n\r\nuser_data\r\n${named('file')}; filename="f"\r\n\r\n${text}\r\n--b--\r\n`;
  const headers = { 'content-type': 'multipart/form-data; boundary=b' };
  return (await good(knock('POST', '/v1/files', { key, headers, body }), idSchema)).id;
}
const page = (after: string | undefined, more = '') =>
  knock('GET', `/v1/files?limit=2${after === undefined ? '' : `&after=${after}`}${more}`, { key });
const drop = (id: string) => good(knock('DELETE', `/v1/files/${id}`, { key }), idSchema);

test.each(['desc', 'asc'])(
  'a list in order %s whose files are deleted while it is read comes to its end',
  async (order) => {
    const all: string[] = [];
    for (let n = 0; n < 5; n++) all.push(await stored(`${n}`));
    const seen: string[] = [];
    for (let after: string | undefined, more = true; more; ) {
      const { data, has_more } = await good(page(after, `&order=${order}`), pageSchema);
      for (const { id } of data) {
        seen.push(id);
        await drop(id);
      }
      [after, more] = [data.at(-1)?.id, has_more];
    }
    expect(seen.toSorted()).toEqual(all.toSorted());
  },
);

test('a file that expired since the page before keeps its place; an id that the owner never had is 404', async () => {
  const ids = [await stored('a'), await stored('b'), await stored('c')];
  const [oldest = '', middle = ''] = ids;
  await env.DB.prepare('UPDATE files SET expires_at = 1 WHERE id = ?').bind(middle).run();
  const behind = async () => (await good(page(middle), pageSchema)).data.map(({ id }) => id);
  expect(await behind()).toEqual([oldest]);
  await runDurableObjectAlarm(env.FILE_SWEEP.getByName(FILE_SWEEP_NAME));
  expect((await knock('GET', `/v1/files/${middle}`, { key })).status).toBe(404);
  expect(await behind()).toEqual([oldest]);
  await refusal(knock('GET', `/v1/files?after=${middle}`, { key: other }), 404, 'not_found');
  await refusal(page('file-000000000000000000000000'), 404, 'not_found');
  // A day later its position in the list is forgotten.
  await database(env).update(deletedFiles).set({ deletedAt: 1 });
  await stored('wakes the sweep');
  await runDurableObjectAlarm(env.FILE_SWEEP.getByName(FILE_SWEEP_NAME));
  expect(await database(env).$count(deletedFiles)).toBe(0);
});

const TEXT = '0123456789';
async function part(range: string, more: Record<string, string> = {}) {
  const id = await stored(TEXT);
  const answer = await knock('GET', `/v1/files/${id}/content`, { key, headers: { range, ...more } });
  const [status, text] = [answer.status, await answer.text()];
  return { status, text, range: answer.headers.get('content-range'), length: answer.headers.get('content-length') };
}

test.each([
  ['bytes=4-', '456789', '4-9'],
  ['bytes=0-0', '0', '0-0'],
  ['bytes=7-99', '789', '7-9'],
  ['bytes=-3', '789', '7-9'],
  ['bytes=-99', TEXT, '0-9'],
])('%s gives these bytes alone', async (range, text, told) => {
  const length = String(text.length);
  expect(await part(range)).toEqual({ status: 206, text, range: `bytes ${told}/10`, length });
});

test.each(['bytes=1-2,4-5', 'bytes=5-2', 'bytes=-', 'lines=1-2', 'bytes=a-b'])('%s gives all', async (range) => {
  expect(await part(range)).toEqual({ status: 200, text: TEXT, range: null, length: '10' });
});

test.each(['bytes=10-', 'bytes=-0'])('%s is 416, with the length of the file', async (range) => {
  const { status, range: told } = await part(range);
  expect([status, told]).toEqual([416, 'bytes */10']);
});

test('a download goes on where it broke off as long as the file is the same', async () => {
  const id = await stored(TEXT);
  const ask = (method: string, headers: Record<string, string> = {}) =>
    knock(method, `/v1/files/${id}/content`, { key, headers });
  const head = await ask('HEAD');
  expect([head.status, head.headers.get('content-length'), head.headers.get('accept-ranges')]).toEqual([
    200,
    '10',
    'bytes',
  ]);
  const etag = head.headers.get('etag') ?? '';
  const rest = await ask('GET', { range: 'bytes=8-', 'if-range': etag });
  expect([rest.status, await rest.text(), rest.headers.get('etag')]).toEqual([206, '89', etag]);
  const anew = await ask('GET', { range: 'bytes=8-', 'if-range': '"another"' });
  expect([anew.status, await anew.text()]).toEqual([200, TEXT]);
});

test('a file of which the store has lost a part is an error with a reason, not a connection that breaks', async () => {
  const id = await stored(TEXT);
  await env.BUCKET?.put(`files/${id}`, '0123');
  await refusal(knock('GET', `/v1/files/${id}/content`, { key }), 503, 'server_is_overloaded');
});
