/**
 * Fetches a repository of a hub into a Hugging Face cache. It needs no gateway and no agent that runs, so it works on a
 * login node before a job starts. Engines of the job find the files by `HF_HOME`.
 */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, open, readdir, rename, rm, stat, statfs } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { ManifestFile, WeightsManifest } from '../../shared/weights/weights-manifest.ts';
import { cacheFolder, type Source } from '../../shared/weights/weights-source.ts';
import { linkSnapshot } from './hub-cache.ts';
import type { BlobSource } from './sources/blob-source.ts';
import { asWeightsError, WeightsError } from './weights-error.ts';

/** Tries of a file without one more byte, and the pause before each. */
const TRIES_MAX = 5;
const PAUSE_MS = 2_000;
/** A part of a file that was not written for this long is of a process that ended. */
const STALE_MS = 3_600_000;
const PART = '.otela-part';

export interface CacheFetch {
  source: Source & { kind: 'hub' };
  from: BlobSource;
  /** Directory of the cache, such as `~/.cache/huggingface/hub`. */
  cache: string;
  /** @param bytes of the repository that are in the cache now */
  onProgress(bytes: number, total: number): void;
  signal: AbortSignal;
  /** Replaced in tests. */
  pauseMs?: number;
}

/**
 * Resolves with the directory of the snapshot. Files that the cache has are not read again.
 * @throws WeightsError
 */
export async function fetchToCache(fetch: CacheFetch): Promise<string> {
  const { source, from, cache, signal, onProgress } = fetch;
  const manifest = await from.list(signal);
  const folder = join(cache, cacheFolder(source));
  const blobs = join(folder, 'blobs');
  try {
    await mkdir(blobs, { recursive: true, mode: 0o700 });
    await removeStale(blobs);
    const total = sizeOf(manifest.files);
    const missing = await missingFiles(blobs, manifest);
    await requireSpace(cache, sizeOf(missing));
    let done = total - sizeOf(missing);
    onProgress(done, total);
    for (const file of missing)
      await fetchFile(file, join(blobs, blobName(file)), manifest.revision, fetch, (bytes) => {
        done += bytes;
        onProgress(done, total);
      });
  } catch (error) {
    throw asWeightsError(error);
  }
  const names = new Map(manifest.files.map((file) => [file.key, blobName(file)]));
  const blobPath = (key: string) => join(blobs, names.get(key) ?? key);
  return linkSnapshot({ folder, revision: source.revision, manifest, blobPath });
}

const blobName = ({ key, etag }: ManifestFile) => etag ?? key;
const sizeOf = (files: readonly ManifestFile[]) => files.reduce((sum, { size }) => sum + size, 0);

async function missingFiles(blobs: string, { files }: WeightsManifest): Promise<ManifestFile[]> {
  const missing = new Map<string, ManifestFile>();
  for (const file of files) {
    const found = await stat(join(blobs, blobName(file))).catch(() => undefined);
    if (found?.size !== file.size) missing.set(blobName(file), file);
  }
  return [...missing.values()];
}

async function requireSpace(directory: string, bytes: number): Promise<void> {
  const { bavail, bsize } = await statfs(directory);
  if (bytes <= bavail * bsize) return;
  const gib = (value: number) => (value / 2 ** 30).toFixed(1);
  throw new WeightsError('full', `${directory} has ${gib(bavail * bsize)} GiB free; the files need ${gib(bytes)} GiB`);
}

async function fetchFile(
  file: ManifestFile,
  blob: string,
  revision: string,
  { from, signal, pauseMs = PAUSE_MS }: CacheFetch,
  onBytes: (bytes: number) => void,
): Promise<void> {
  // Two processes may fetch the same file: each writes its own part, and the last one replaces an equal file.
  const part = join(dirname(blob), `${blobName(file)}.${randomUUID()}${PART}`);
  const hash = contentHash(file);
  let offset = 0;
  const readOn = async () => {
    const out = await open(part, 'a', 0o600);
    try {
      // A failed write may have left a part of its bytes in the file.
      await out.truncate(offset);
      for await (const bytes of from.read(file, { revision, offset }, signal)) {
        if (offset + bytes.length > file.size) throw new WeightsError('wrong', `${file.path} is larger than listed`);
        await out.appendFile(bytes);
        hash.update(bytes);
        offset += bytes.length;
        onBytes(bytes.length);
      }
    } finally {
      await out.close();
    }
    if (offset < file.size) throw new WeightsError('unavailable', `${file.path} ended after ${offset} bytes`);
  };
  try {
    for (let [tries, before, isDone] = [1, 0, false]; !isDone; tries++) {
      isDone = await readOn().then(
        () => true,
        async (error: unknown) => {
          const failure = asWeightsError(error);
          if (offset > before) tries = 0;
          before = offset;
          if (failure.code !== 'unavailable' || signal.aborted || tries >= TRIES_MAX) throw failure;
          await delay(pauseMs, undefined, { signal });
          return false;
        },
      );
    }
    if (hash.digest('hex') !== (file.etag ?? file.key))
      throw new WeightsError('wrong', `${file.path} has another digest than the hub lists`);
    await rename(part, blob);
  } catch (error) {
    await rm(part, { force: true });
    throw error;
  }
}

/** The hub names small files by git's digest, and large ones by SHA-256. */
function contentHash({ etag, size }: ManifestFile) {
  return etag === undefined ? createHash('sha256') : createHash('sha1').update(`blob ${size}\0`);
}

async function removeStale(blobs: string): Promise<void> {
  for (const name of await readdir(blobs)) {
    if (!name.endsWith(PART)) continue;
    const found = await stat(join(blobs, name)).catch(() => undefined);
    if (found !== undefined && Date.now() - found.mtimeMs > STALE_MS) await rm(join(blobs, name), { force: true });
  }
}

/** True if another machine may reach the hub: this one has no way to it. */
export function isUnreachable(error: unknown): boolean {
  return error instanceof WeightsError && error.code === 'unavailable' && error.status === undefined;
}
