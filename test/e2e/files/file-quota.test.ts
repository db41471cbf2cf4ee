/** What takes room of the file store counts for its owner, or is not kept. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Gateway } from '../../support/gateway.ts';
import { endAll } from '../../support/processes.ts';
import { lineOf } from '../../support/virtual-gateway.ts';

let gateway: Gateway;
beforeAll(async () => {
  gateway = await Gateway.start();
});
afterAll(endAll);

const clientOf = async (name: string) =>
  new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.createKey(name), maxRetries: 0 });
const stored = () => readdir(join(gateway.data, 'files')).catch(() => []);

/** A form whose file is whole, and which is wrong behind it. */
function brokenForm(part: string): { headers: Record<string, string>; body: string } {
  const file = `--b\r\ncontent-disposition: form-data; name="${part}"; filename="f"\r\n\r\n{"a":1}\r\n`;
  const body = `${file}${file}--b--\r\n`;
  return { headers: { 'content-type': 'multipart/form-data; boundary=b' }, body };
}

it('a file whose form breaks off behind it is not kept: no row names it, and it would count against no owner', async () => {
  const client = await clientOf('breaker');
  const post = (path: string, part: string) => {
    const { headers, body } = brokenForm(part);
    const authorization = `Bearer ${client.apiKey}`;
    return fetch(`${gateway.url}/v1/${path}`, { method: 'POST', headers: { ...headers, authorization }, body });
  };
  expect((await post('files', 'file')).status).toBe(400);
  const declared = { filename: 'f', purpose: 'user_data', bytes: 14, mime_type: 'text/plain' } as const;
  const { id } = await client.uploads.create(declared);
  expect((await post(`uploads/${id}/parts`, 'data')).status).toBe(400);
  expect(await stored()).toEqual([]);
});

it('an owner whose room is used up begins no batch: one input can have many outputs', async () => {
  const client = await clientOf('hoarder');
  const file = await client.files.create({
    file: await toFile(Buffer.from(lineOf('a')), 'in.jsonl'),
    purpose: 'batch',
  });
  const begin = () =>
    client.batches.create({ input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' });
  const declare = (bytes: number) =>
    client.uploads.create({ filename: 'f', purpose: 'user_data', bytes, mime_type: 'text/plain' });
  for (let n = 0; n < 39; n++) await declare(512_000_000);
  await begin();
  await declare(20_000_000_000 - 39 * 512_000_000 - file.bytes);
  await expect(begin()).rejects.toMatchObject({ status: 429 });
});
