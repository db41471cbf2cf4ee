/**
 * The contract of every file store, tested on a directory and on a bucket of a real S3 server. R2 has its own test in
 * test/gateway/files/.
 */
import { createHash } from 'node:crypto';
import { truncate } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type FileStore, FileTooLarge } from '../../../gateway/files/file-store.ts';
import { DirectoryFileStore } from '../../../gateway/hosts/node/directory-file-store.ts';
import { S3Client } from '../../../gateway/hosts/node/s3/s3-client.ts';
import { readS3Config } from '../../../gateway/hosts/node/s3/s3-config.ts';
import { S3FileStore } from '../../../gateway/hosts/node/s3/s3-file-store.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { BUCKET, NO_S3_SERVER, S3_SERVER, S3Server } from '../../support/s3-server.ts';

if (S3_SERVER === undefined) console.log(`skipped: buckets: ${NO_S3_SERVER}`);

const MIB = 1024 * 1024;
let made = 0;
const newId = () => `file-${String(made++).padStart(24, '0')}`;
const text = (of: string) => new TextEncoder().encode(of);

async function* pieces(count: number, bytes: number, fail?: Error): AsyncGenerator<Uint8Array> {
  for (let i = 0; i < count; i++) yield new Uint8Array(bytes).fill(i % 251);
  if (fail !== undefined) throw fail;
}
async function sha256(content: AsyncIterable<Uint8Array> | undefined): Promise<string> {
  const hash = createHash('sha256');
  if (content === undefined) return 'none';
  for await (const piece of content) hash.update(piece);
  return hash.digest('hex');
}
async function textOf(content: AsyncIterable<Uint8Array> | undefined): Promise<string | undefined> {
  if (content === undefined) return undefined;
  const all: Uint8Array[] = [];
  for await (const piece of content) all.push(piece);
  return Buffer.concat(all).toString();
}
async function idsOf(store: FileStore): Promise<string[]> {
  const ids: string[] = [];
  for await (const { id } of store.list()) ids.push(id);
  return ids;
}

interface Place {
  store: FileStore;
  /** Path of a stored file. */
  path(id: string): string;
}

const PLACES: [string, boolean, () => Promise<Place>][] = [
  [
    'a directory',
    true,
    async () => {
      const directory = await temporaryDirectory('otela-files');
      return { store: new DirectoryFileStore(directory), path: (id) => join(directory, id) };
    },
  ],
  [
    'a bucket',
    S3_SERVER !== undefined,
    async () => {
      const server = await S3Server.start();
      const store = new S3FileStore(new S3Client(readS3Config(`s3://${BUCKET}/some/where`, server.env())));
      return { store, path: (id) => join(server.bucket, 'some/where', id) };
    },
  ],
];

afterAll(endAll);

describe.each(PLACES)('%s', (_, possible, open) => {
  let place: Place;
  beforeAll(async () => {
    if (possible) place = await open();
  });
  const test = it.skipIf(!possible);

  test('keeps a file, whole and in ranges, until it is deleted', async () => {
    const { store } = place;
    const id = newId();
    async function* content() {
      yield text('one ');
      yield text('two three');
    }
    expect(await store.put(id, content(), 100)).toEqual({ bytes: 13 });
    expect(await textOf(await store.read(id))).toBe('one two three');
    expect(await textOf(await store.read(id, { offset: 4, length: 3 }))).toBe('two');
    expect(await textOf(await store.read(id, { offset: 13, length: 0 }))).toBe('');
    expect(await idsOf(store)).toContain(id);
    await store.delete(id);
    await store.delete(id);
    expect(await store.read(id)).toBeUndefined();
    expect(await store.read(id, { offset: 0, length: 0 })).toBeUndefined();
  });

  test('keeps an empty file', async () => {
    const id = newId();
    expect(await place.store.put(id, pieces(0, 0), 100)).toEqual({ bytes: 0 });
    expect(await textOf(await place.store.read(id))).toBe('');
  });

  test('keeps a file of several parts, its last one short or exactly full', async () => {
    const { store } = place;
    for (const count of [16, 19]) {
      const id = newId();
      expect(await store.put(id, pieces(count, MIB), 100 * MIB)).toEqual({ bytes: count * MIB });
      expect(await sha256(await store.read(id))).toBe(await sha256(pieces(count, MIB)));
      const across = await textOf(await store.read(id, { offset: 8 * MIB - 2, length: 4 }));
      expect(across).toBe(Buffer.from([7, 7, 8, 8]).toString());
    }
  });

  test.each([1, 20])('has nothing of a file of %i MiB that is too large, or whose content fails', async (mib) => {
    const { store } = place;
    const [large, broken] = [newId(), newId()];
    await expect(store.put(large, pieces(mib, MIB), mib * MIB - 1)).rejects.toBeInstanceOf(FileTooLarge);
    const gone = new Error('the client has gone');
    await expect(store.put(broken, pieces(mib, MIB, gone), 100 * MIB)).rejects.toBe(gone);
    expect([await store.read(large), await store.read(broken)]).toEqual([undefined, undefined]);
    expect(await store.dropUnfinished(Date.now() + 60_000)).toBe(0);
  });

  test('says so where it has less of a file than is wanted', async () => {
    const { store, path } = place;
    const id = newId();
    await store.put(id, pieces(1, 1_000), 1_000);
    await truncate(path(id), 600);
    await expect(store.read(id, { offset: 500, length: 200 })).rejects.toMatchObject({ code: 'damaged' });
    expect((await textOf(await store.read(id, { offset: 0, length: 600 })))?.length).toBe(600);
  });

  test('lists more files than one page has', async () => {
    const { store } = place;
    const ids = Array.from({ length: 1_030 }, newId);
    await Promise.all(
      Array.from({ length: 10 }, async (_, worker) => {
        for (let at = worker; at < ids.length; at += 10) await store.put(ids[at] ?? '', pieces(0, 0), 1);
      }),
    );
    const found = await idsOf(store);
    expect(new Set(found).size).toBe(found.length);
    expect(found).toEqual(expect.arrayContaining(ids));
  });
});
