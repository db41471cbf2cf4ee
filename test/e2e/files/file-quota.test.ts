/** Everything that takes space in the file store counts for its owner, or is not kept. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import OpenAI, { toFile } from 'openai';
import { request } from 'undici';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { Gateway } from '../../support/gateway.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { lineOf } from '../../support/virtual-gateway.ts';

let gateway: Gateway;
beforeAll(async () => {
  gateway = await Gateway.start();
});
afterAll(endAll);

const clientOf = async (name: string) =>
  new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: await gateway.createKey(name), maxRetries: 0 });
const stored = () => readdir(join(gateway.data, 'files')).catch(() => []);

it('a file whose form breaks off behind it is not kept: no row names it, and it would count against no owner', async () => {
  const client = await clientOf('breaker');
  const post = async (path: string, part: string) => {
    const head = (name: string) => `--b\r\ncontent-disposition: form-data; name="${name}"`;
    async function* form() {
      yield Buffer.from(`${head(part)}; filename="f"\r\n\r\n{"a":1}\r\n${head('purpose')}\r\n\r\nuser_data`);
      await eventually(
        'the file is stored',
        10_000,
        async () => /^file-\w+$/.test((await stored()).join()) || undefined,
      );
    }
    const headers = { authorization: `Bearer ${client.apiKey}`, 'content-type': 'multipart/form-data; boundary=b' };
    const { statusCode, body } = await request(`${gateway.url}/v1/${path}`, {
      method: 'POST',
      headers,
      body: Readable.from(form()),
    });
    await body.dump();
    return statusCode;
  };
  expect(await post('files', 'file')).toBe(400);
  expect(await stored()).toEqual([]);
  const declared = { filename: 'f', purpose: 'user_data', bytes: 14, mime_type: 'text/plain' } as const;
  const { id } = await client.uploads.create(declared);
  expect(await post(`uploads/${id}/parts`, 'data')).toBe(400);
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
