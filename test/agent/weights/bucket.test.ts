/** A bucket with a server that returns less than S3 does. */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { openSource } from '../../../agent/weights/sources/open-source.ts';
import { atEnd, endAll } from '../../support/processes.ts';
import { Cluster, PIECE } from './cluster.ts';

afterEach(endAll);

interface Stored {
  bytes: Buffer;
  modified: Date;
  etag?: string;
}

/** Only objects that have a tag get one, in lists and in responses. */
async function startBucket(objects: Map<string, Stored>): Promise<Record<string, string>> {
  const row = ([key, { bytes, modified, etag }]: [string, Stored]) =>
    `<Contents><Key>${key}</Key><LastModified>${modified.toISOString()}</LastModified>${
      etag === undefined ? '' : `<ETag>&quot;${etag}&quot;</ETag>`
    }<Size>${bytes.length}</Size></Contents>`;
  const server = createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://bucket');
    if (searchParams.has('list-type')) {
      const listed = [...objects].filter(([key]) => key.startsWith(searchParams.get('prefix') ?? ''));
      const page = listed.slice(0, Number(searchParams.get('max-keys') ?? 1_000));
      return void response.end(`<ListBucketResult>${page.map(row).join('')}</ListBucketResult>`);
    }
    const found = objects.get(pathname.slice('/bucket/'.length));
    if (found === undefined) return void response.writeHead(404).end();
    const { bytes, modified, etag } = found;
    const tag = etag === undefined ? {} : { etag: `"${etag}"` };
    response.writeHead(200, { 'last-modified': modified.toUTCString(), 'content-length': bytes.length, ...tag });
    response.end(bytes);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(() => void server.close());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { AWS_ENDPOINT_URL_S3: url, AWS_ACCESS_KEY_ID: 'otela', AWS_SECRET_ACCESS_KEY: 'secret' };
}

const nodeOf = (env: Record<string, string>) =>
  new Cluster().add({ weights: { env, openSource: (source) => openSource(source, env) } });

it('objects with a tag and without one are told apart', async () => {
  const modified = new Date('2026-01-02T03:04:05.678Z');
  const objects = new Map<string, Stored>([
    ['a', { bytes: randomBytes(PIECE), modified }],
    ['b', { bytes: randomBytes(PIECE), modified, etag: 'b' }],
    ['c', { bytes: randomBytes(PIECE), modified, etag: 'c' }],
  ]);
  const { path } = await (await nodeOf(await startBucket(objects))).weights.pull('s3://bucket');
  for (const [name, { bytes }] of objects) expect((await readFile(join(path, name))).equals(bytes)).toBe(true);
});

it('one object is taken by its own name, as a packed environment is', async () => {
  const object = { bytes: randomBytes(PIECE), modified: new Date(1_767_225_600_000), etag: 'e' };
  const objects = new Map<string, Stored>([
    ['env/vllm.tar', object],
    ['env/vllm.tar.old', { ...object, bytes: randomBytes(PIECE) }],
  ]);
  const node = await nodeOf(await startBucket(objects));
  const { path, manifest } = await node.weights.pull('s3://bucket/env/vllm.tar');
  expect(manifest.files.map((file) => file.path)).toEqual(['vllm.tar']);
  expect((await readFile(join(path, 'vllm.tar'))).equals(object.bytes)).toBe(true);
  await expect(node.weights.pull('s3://bucket/env/vllm')).rejects.toThrow('contains no objects');
});

it.each([
  ['with its old size', PIECE],
  ['with another', PIECE / 2],
])('an object without a tag that was replaced %s is listed anew', async (_what, size) => {
  const object = { bytes: randomBytes(PIECE), modified: new Date(1_767_225_600_000) };
  const objects = new Map<string, Stored>([['a', object]]);
  const env = await startBucket(objects);
  const reader = openSource({ kind: 's3', bucket: 'bucket', prefix: '' }, env);
  const { signal } = new AbortController();
  const { revision, files } = await reader.list(signal);
  const [file] = files;
  if (file === undefined) return expect.unreachable();
  const read = async () => {
    let came = 0;
    for await (const chunk of reader.read(file, { revision, offset: 0 }, signal)) came += chunk.length;
    return came;
  };
  expect(await read()).toBe(PIECE);
  // Detected by the second of the change, or by the size if both have the same second.
  const modified = new Date(object.modified.getTime() + (size === PIECE ? 1_000 : 0));
  objects.set('a', { bytes: randomBytes(size), modified });
  await expect(read()).rejects.toMatchObject({ code: 'changed' });
});
