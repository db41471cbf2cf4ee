/** A repository of a hub in a Hugging Face cache, without an agent that runs. */
import { randomBytes } from 'node:crypto';
import { type FileHandle, open, readdir, readFile, readlink, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it, onTestFinished, vi } from 'vitest';
import { fetchToCache, isUnreachable } from '../../../agent/weights/fetch-to-cache.ts';
import type { BlobSource } from '../../../agent/weights/sources/blob-source.ts';
import { openSource } from '../../../agent/weights/sources/open-source.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';
import { sha256 } from './cluster.ts';
import { COMMIT, gitDigest, startHub } from './mock-hub.ts';

afterEach(endAll);

const WEIGHTS = randomBytes(300_000);
const CONFIG = Buffer.from('{"model_type":"x"}');
const EMPTY = Buffer.alloc(0);
const FILES = { 'config.json': CONFIG, 'parts/model.safetensors': WEIGHTS, 'empty.txt': EMPTY };
const SOURCE = { kind: 'hub', repository: 'lab/model', revision: 'main' } as const;
const FOLDER = 'models--lab--model';

function fetching(cache: string, from: BlobSource) {
  const progress: string[] = [];
  const { signal } = new AbortController();
  const onProgress = (bytes: number, total: number) => void progress.push(`${bytes}/${total}`);
  return { progress, done: fetchToCache({ source: SOURCE, from, cache, onProgress, signal, pauseMs: 1 }) };
}

const hubAt = (url: string) => openSource(SOURCE, { HF_ENDPOINT: url });

it('the files are where the library of the hub looks, and only missing ones are read again', async () => {
  const cache = await temporaryDirectory();
  const hub = await startHub({ repository: SOURCE.repository, files: FILES });
  const snapshot = await fetching(cache, hubAt(hub.url)).done;
  expect(snapshot).toBe(join(cache, FOLDER, 'snapshots', COMMIT));
  expect(await readFile(join(cache, FOLDER, 'refs/main'), 'utf8')).toBe(COMMIT);
  for (const [path, bytes] of Object.entries(FILES))
    expect((await readFile(join(snapshot, path))).equals(bytes)).toBe(true);
  expect(await readlink(join(snapshot, 'config.json'))).toBe(`../../blobs/${gitDigest(CONFIG)}`);

  const blobs = join(cache, FOLDER, 'blobs');
  await rm(join(blobs, gitDigest(CONFIG)));
  const stale = join(blobs, 'x.otela-part');
  await writeFile(stale, 'x');
  await utimes(stale, 1, 1);
  hub.seen.length = 0;
  const again = fetching(cache, hubAt(hub.url));
  expect(await again.done).toBe(snapshot);
  expect(hub.seen.map((line) => line.split(' ')[1])).toEqual([
    '/api/models/lab/model/revision/main?blobs=true',
    `/lab/model/resolve/${COMMIT}/config.json`,
  ]);
  const total = CONFIG.length + WEIGHTS.length;
  expect(again.progress).toEqual([`${WEIGHTS.length}/${total}`, `${total}/${total}`]);
  expect((await readdir(blobs)).toSorted()).toEqual([gitDigest(CONFIG), gitDigest(EMPTY), sha256(WEIGHTS)].toSorted());
});

it('a read that breaks off goes on where it ended', async () => {
  const cache = await temporaryDirectory();
  const hub = await startHub({ repository: SOURCE.repository, files: FILES, breakAt: 100_000 });
  const snapshot = await fetching(cache, hubAt(hub.url)).done;
  expect((await readFile(join(snapshot, 'parts/model.safetensors'))).equals(WEIGHTS)).toBe(true);
  expect(hub.seen.filter((line) => /signed.*bytes=\d+-/.test(line))).toHaveLength(1);
});

it('a write that fails halfway leaves no bytes in the file', async () => {
  const cache = await temporaryDirectory();
  const handle = await open('/dev/null');
  const files: Pick<FileHandle, 'appendFile'> = Object.getPrototypeOf(handle);
  await handle.close();
  const write = vi.spyOn(files, 'appendFile').mockImplementationOnce(async function (this: FileHandle, bytes) {
    await this.write((bytes as Uint8Array).subarray(0, 1_000));
    throw Object.assign(new Error('i/o error'), { code: 'EIO' });
  });
  onTestFinished(() => write.mockRestore());
  const read: BlobSource['read'] = (_file, { offset }) => pieces(WEIGHTS.subarray(offset));
  const snapshot = await fetching(cache, { list: async () => MANIFEST, read }).done;
  expect(write).toHaveBeenCalledTimes(2);
  expect((await readFile(join(snapshot, 'model.safetensors'))).equals(WEIGHTS)).toBe(true);
});

it.each<[string, Partial<BlobSource>, RegExp]>([
  ['other bytes', { read: () => pieces(randomBytes(WEIGHTS.length)) }, /another digest than the hub lists/],
  ['more bytes', { read: () => pieces(WEIGHTS, CONFIG) }, /larger than listed/],
  ['no bytes', { read: () => pieces() }, /ended after 0 bytes/],
  [
    'a list of more than fits on the disk',
    { list: async () => ({ ...MANIFEST, files: [{ ...FILE, size: 2 ** 44 }] }) },
    /GiB free; the files need 16384\.0 GiB/,
  ],
])('%s of a hub leave no file', async (_, more, words) => {
  const cache = await temporaryDirectory();
  const from = { list: async () => MANIFEST, read: () => pieces(WEIGHTS), ...more };
  await expect(fetching(cache, from).done).rejects.toThrow(words);
  expect(await readdir(join(cache, FOLDER, 'blobs'))).toEqual([]);
});

const FILE = { path: 'model.safetensors', size: WEIGHTS.length, key: sha256(WEIGHTS), exact: true };
const MANIFEST = { v: 1 as const, source: 'hub:lab/model@main', revision: COMMIT, public: true, files: [FILE] };

async function* pieces(...all: Buffer[]): AsyncGenerator<Uint8Array> {
  yield* all;
}

it('a machine without a way to the hub is distinguished from a hub that refuses', async () => {
  const cache = await temporaryDirectory();
  const failed = (from: BlobSource) => fetching(cache, from).done.catch((error: unknown) => error);
  expect(isUnreachable(await failed(hubAt('http://127.0.0.1:1')))).toBe(true);
  const hub = await startHub({ repository: SOURCE.repository, files: FILES, token: 'hf_secret' });
  expect(isUnreachable(await failed(hubAt(hub.url)))).toBe(false);
  const other = await startHub({ repository: 'lab/other', files: FILES });
  const missing = await failed(hubAt(other.url));
  expect(missing).toMatchObject({ code: 'unavailable', status: 404 });
  expect(isUnreachable(missing)).toBe(false);
  expect(isUnreachable(new Error('x'))).toBe(false);
});
