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
import { PIECE_BYTES } from '../../../shared/weights/pieces.ts';
import { type Source, sourceText } from '../../../shared/weights/source.ts';
import { asWeightsError, WeightsError } from '../error.ts';
import { manifestFile, revisionOf, sortedFiles } from './keys.ts';
import type { BlobSource, ReadFrom } from './source.ts';

const READ_BYTES = 1024 * 1024;
const DEPTH_MAX = 16;
const SHA256 = /^[0-9a-f]{64}$/;

/** A directory or one file, on the shared file system for instance. A folder `models--…` of a Hugging Face cache stands for its `main`. */
export class DirectorySource implements BlobSource {
  readonly #source: Source & { kind: 'dir' };

  constructor(source: Source & { kind: 'dir' }) {
    this.#source = source;
  }

  async list(signal: AbortSignal): Promise<Manifest> {
    const source = sourceText(this.#source);
    try {
      const root = await this.#root();
      const isFolder = (await stat(root)).isDirectory();
      const names = isFolder ? await namesBelow(root, signal) : [basename(root)];
      const files = await Promise.all(names.map((name) => listed(source, name, isFolder ? join(root, name) : root)));
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

  /** Pieces of two contents of one file would make a blob that never was. @throws WeightsError changed */
  async #requireSame({ path, size, key }: ManifestFile, place: string): Promise<void> {
    const now = await listed(sourceText(this.#source), path, place).catch(noneThere);
    if (now?.size !== size || now.key !== key)
      throw new WeightsError('changed', `${place} has changed since it was listed`);
  }

  async *read(file: ManifestFile, { offset }: ReadFrom, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    try {
      const root = await this.#root();
      const place = (await stat(root)).isDirectory() ? join(root, file.path) : root;
      await this.#requireSame(file, place);
      const options = { start: offset, highWaterMark: READ_BYTES, signal };
      let at = offset;
      let checkedAt = offset;
      for await (const chunk of createReadStream(await realpath(place), options)) {
        const bytes = Buffer.from(chunk);
        at += bytes.length;
        // Written while it was read: noticed before the piece is whole, and on its way to others.
        if (at - checkedAt >= PIECE_BYTES || at >= file.size) {
          await this.#requireSame(file, place);
          checkedAt = at;
        }
        yield bytes;
      }
      if (at < file.size) await this.#requireSame(file, place);
    } catch (error) {
      throw asWeightsError(error);
    }
  }
}

function noneThere(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}

/** Its key is the same for all nodes of a shared file system, whose inode numbers may differ. */
async function listed(source: string, path: string, place: string): Promise<ManifestFile> {
  const { size, mtimeMs, ctimeMs } = await stat(place);
  // The blobs of a cache are called by their SHA-256.
  const blob = basename((await readlink(place).catch(() => '')) || place);
  // A file that is replaced may keep the time of its content (`cp -p`), and never that of its change.
  const stamp = `${mtimeMs} ${ctimeMs}`;
  return manifestFile(source, { path, size, sha256: SHA256.test(blob) ? blob : undefined, stamp });
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
