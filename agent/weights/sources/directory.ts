import { createReadStream } from 'node:fs';
import { readdir, readFile, readlink, realpath, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import {
  FILES_MAX,
  isSafePath,
  type Manifest,
  type ManifestFile,
  manifestSchema,
} from '../../../shared/weights/manifest.ts';
import { type Source, sourceText } from '../../../shared/weights/source.ts';
import { asWeightsError, WeightsError } from '../error.ts';
import { manifestFile, revisionOf, sortedFiles } from './keys.ts';
import type { BlobSource } from './source.ts';

const READ_BYTES = 1024 * 1024;
const DEPTH_MAX = 16;
const SHA256 = /^[0-9a-f]{64}$/;

/** A directory or one file, on the shared file system for instance. A folder `models--…` of a Hugging Face cache stands for its `main`. */
export class DirectorySource implements BlobSource {
  readonly #source: Source & { kind: 'dir' };
  /** Files by their path in the manifest. */
  readonly #paths = new Map<string, string>();

  constructor(source: Source & { kind: 'dir' }) {
    this.#source = source;
  }

  async list(signal: AbortSignal): Promise<Manifest> {
    const source = sourceText(this.#source);
    try {
      const root = await this.#root();
      const names = (await stat(root)).isDirectory() ? await namesBelow(root, signal) : [''];
      const files = await Promise.all(names.map((name) => this.#file(source, root, name)));
      if (files.length === 0) throw new WeightsError('wrong', `${root} holds no file`);
      const sorted = sortedFiles(files);
      return manifestSchema.parse({ v: 1, source, revision: revisionOf(sorted), public: false, files: sorted });
    } catch (error) {
      throw asWeightsError(error);
    }
  }

  /** The snapshot that `refs/main` names, where it is a folder of a cache. */
  async #root(): Promise<string> {
    const { path } = this.#source;
    const commit = await readFile(join(path, 'refs', 'main'), 'utf8').catch(() => undefined);
    return commit === undefined || !/^[\w.-]+$/.test(commit.trim()) ? path : join(path, 'snapshots', commit.trim());
  }

  async #file(source: string, root: string, name: string): Promise<ManifestFile> {
    const place = name === '' ? root : join(root, name);
    const path = name === '' ? basename(root) : name;
    const { size, mtimeMs, ino } = await stat(place);
    this.#paths.set(path, place);
    // The blobs of a cache are called by their SHA-256.
    const blob = basename((await readlink(place).catch(() => '')) || place);
    return manifestFile(source, {
      path,
      size,
      sha256: SHA256.test(blob) ? blob : undefined,
      stamp: `${mtimeMs} ${ino}`,
    });
  }

  async *read({ path, size }: ManifestFile, offset: number, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    try {
      if (this.#paths.size === 0) await this.list(signal);
      const place = this.#paths.get(path);
      if (place === undefined) throw new WeightsError('unavailable', `${path} is gone from ${this.#source.path}`);
      const real = await realpath(place);
      if ((await stat(real)).size !== size) throw new WeightsError('wrong', `${place} has changed since it was listed`);
      yield* createReadStream(real, { start: offset, highWaterMark: READ_BYTES, signal });
    } catch (error) {
      throw asWeightsError(error);
    }
  }
}

/** Names of regular files below `root`, and of symlinks to such. Nothing hidden: `.git`, `.cache`. */
async function namesBelow(root: string, signal: AbortSignal): Promise<string[]> {
  const names: string[] = [];
  const walk = async (folder: string, depth: number): Promise<void> => {
    signal.throwIfAborted();
    if (depth > DEPTH_MAX) throw new WeightsError('wrong', `${root} is deeper than ${DEPTH_MAX} folders`);
    for (const entry of await readdir(join(root, folder), { withFileTypes: true })) {
      const name = folder === '' ? entry.name : `${folder}/${entry.name}`;
      if (entry.name.startsWith('.')) continue;
      if (!isSafePath(name))
        throw new WeightsError('wrong', `${join(root, dirname(name))} holds a name that cannot be served`);
      if (entry.isDirectory()) await walk(name, depth + 1);
      else if (entry.isFile() || (entry.isSymbolicLink() && (await stat(join(root, name))).isFile())) names.push(name);
      if (names.length > FILES_MAX) throw new WeightsError('wrong', `${root} holds more than ${FILES_MAX} files`);
    }
  };
  await walk('', 0);
  return names;
}
