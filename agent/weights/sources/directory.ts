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
  /** By their path in the manifest: where they are, and their keys when they were listed here. */
  readonly #files = new Map<string, { place: string; key: string }>();

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
    const path = name === '' ? basename(root) : name;
    const place = name === '' ? root : join(root, name);
    const file = await this.#listed(source, path, place);
    this.#files.set(path, { place, key: file.key });
    return file;
  }

  async #listed(source: string, path: string, place: string): Promise<ManifestFile> {
    const { size, mtimeMs, ino } = await stat(place);
    // The blobs of a cache are called by their SHA-256.
    const blob = basename((await readlink(place).catch(() => '')) || place);
    return manifestFile(source, {
      path,
      size,
      sha256: SHA256.test(blob) ? blob : undefined,
      stamp: `${mtimeMs} ${ino}`,
    });
  }

  /** Pieces of two contents of one file would make a blob that never was. @throws WeightsError wrong */
  async #requireSame({ path, size }: ManifestFile, { place, key }: { place: string; key: string }): Promise<void> {
    const now = await this.#listed(sourceText(this.#source), path, place);
    // By the key that it has here: another node that listed it may see other inode numbers.
    if (now.size !== size || now.key !== key)
      throw new WeightsError('wrong', `${place} has changed since it was listed`);
  }

  async *read(file: ManifestFile, offset: number, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    try {
      if (this.#files.size === 0) await this.list(signal);
      const known = this.#files.get(file.path);
      if (known === undefined) throw new WeightsError('unavailable', `${file.path} is gone from ${this.#source.path}`);
      await this.#requireSame(file, known);
      yield* createReadStream(await realpath(known.place), { start: offset, highWaterMark: READ_BYTES, signal });
      // Written while it was read.
      await this.#requireSame(file, known);
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
