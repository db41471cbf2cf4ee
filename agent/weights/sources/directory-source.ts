import { type FileHandle, open, readdir, readFile, readlink, realpath, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { PIECE_BYTES } from '../../../shared/weights/blob-pieces.ts';
import {
  FILES_MAX,
  isSafePath,
  type ManifestFile,
  type WeightsManifest,
  weightsManifestSchema,
} from '../../../shared/weights/weights-manifest.ts';
import { type Source, sourceText } from '../../../shared/weights/weights-source.ts';
import { asWeightsError, WeightsError } from '../weights-error.ts';
import type { BlobSource, ReadFrom } from './blob-source.ts';
import { onSource } from './remote-file-operations.ts';
import { listingRevision, manifestFile, sortedFiles } from './source-listing.ts';

const READ_BYTES = 1024 * 1024;
const DEPTH_MAX = 16;
const SHA256 = /^[0-9a-f]{64}$/;

/**
 * A directory or one file, for example on a shared file system. For a folder `models--…` of a Hugging Face cache, the
 * files of its revision `main`.
 */
export class DirectorySource implements BlobSource {
  readonly #source: Source & { kind: 'dir' };

  constructor(source: Source & { kind: 'dir' }) {
    this.#source = source;
  }

  async list(signal: AbortSignal): Promise<WeightsManifest> {
    const source = sourceText(this.#source);
    try {
      const { root, isFolder } = await onSource(() => this.#root(), signal);
      const names = isFolder ? await namesBelow(root, signal) : [basename(root)];
      const one = (name: string) => onSource(() => listed(source, name, isFolder ? join(root, name) : root), signal);
      const files = await Promise.all(names.map(one));
      if (files.length === 0) throw new WeightsError('wrong', `${root} contains no files`);
      const sorted = sortedFiles(files);
      return weightsManifestSchema.parse({
        v: 1,
        source,
        revision: listingRevision(sorted),
        public: false,
        files: sorted,
      });
    } catch (error) {
      throw asWeightsError(error);
    }
  }

  /**
   * The directory to read. In a cache folder, this is the snapshot that `refs/main` names. If there is no `refs/main`,
   * as after a download by tag, it is the only snapshot.
   */
  async #root(): Promise<{ root: string; isFolder: boolean }> {
    const { path } = this.#source;
    const main = (await readFile(join(path, 'refs', 'main'), 'utf8').catch(noneThere))?.trim();
    const commit = main !== undefined && /^\w[\w.-]*$/.test(main) ? main : await onlySnapshot(path);
    const root = commit === undefined ? path : join(path, 'snapshots', commit);
    return { root, isFolder: (await stat(root)).isDirectory() };
  }

  /**
   * Checks that the file is still the listed one. Otherwise a blob could consist of pieces of two versions.
   * @throws WeightsError `changed`
   */
  async #requireSame({ path, size, key }: ManifestFile, place: string): Promise<void> {
    const now = await listed(sourceText(this.#source), path, place).catch(noneThere);
    if (now?.size !== size || now.key !== key)
      throw new WeightsError('changed', `${place} has changed since it was listed`);
  }

  async *read(file: ManifestFile, { offset }: ReadFrom, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    let opened: Promise<FileHandle> | undefined;
    try {
      const { root, isFolder } = await onSource(() => this.#root(), signal);
      const place = isFolder ? join(root, file.path) : root;
      const requireSame = () => onSource(() => this.#requireSame(file, place), signal);
      await requireSame();
      const from = await onSource(() => {
        opened = open(place);
        return opened;
      }, signal);
      const buffer = Buffer.allocUnsafe(READ_BYTES);
      let checkedAt = offset;
      for (let at = offset; at < file.size; ) {
        const { bytesRead } = await onSource(() => from.read(buffer, 0, READ_BYTES, at), signal);
        at += bytesRead;
        // Before each piece is complete, check whether the file has changed, because other nodes get a complete piece.
        if (at - checkedAt >= PIECE_BYTES || at >= file.size || bytesRead === 0) {
          await requireSame();
          checkedAt = at;
        }
        if (bytesRead === 0) return;
        yield buffer.subarray(0, bytesRead);
      }
    } catch (error) {
      throw asWeightsError(error);
    } finally {
      // Close the file without waiting, because the file system may hang.
      opened?.then((file) => file.close()).catch(() => {});
    }
  }
}

/**
 * The name of the only snapshot of a cache folder; undefined for any other path.
 * @throws WeightsError `wrong` if there are several snapshots
 */
async function onlySnapshot(path: string): Promise<string | undefined> {
  if (!basename(path).startsWith('models--')) return undefined;
  const [only, ...more] = (await readdir(join(path, 'snapshots')).catch(noneThere)) ?? [];
  if (more.length === 0) return only;
  throw new WeightsError(
    'wrong',
    `${path} has several snapshots and no refs/main: name one, for example ${path}/snapshots/${only}`,
  );
}

function noneThere(error: NodeJS.ErrnoException): undefined {
  if (!['ENOENT', 'ENOTDIR', 'EISDIR'].includes(error.code ?? '')) throw error;
}

/**
 * The file as a manifest lists it. Its key must be the same on all nodes of a shared file system, so it does not depend
 * on inode numbers, which may differ.
 */
async function listed(source: string, path: string, place: string): Promise<ManifestFile> {
  const { size, mtimeMs, ctimeMs } = await stat(place);
  // Blobs of a cache are named by their SHA-256.
  const blob = basename((await readlink(place).catch(() => '')) || place);
  // A replaced file may keep its modification time (`cp -p`), but never its change time. So the two times together
  // identify the file's version.
  const stamp = `${mtimeMs} ${ctimeMs}`;
  return manifestFile(source, { path, size, sha256: SHA256.test(blob) ? blob : undefined, stamp });
}

/** Names of regular files below `root`, also through symlinks. Hidden files such as `.git` and `.cache` are skipped. */
async function namesBelow(root: string, signal: AbortSignal): Promise<string[]> {
  const names: string[] = [];
  const walk = async (folder: string, above: readonly string[]): Promise<void> => {
    if (above.length > DEPTH_MAX)
      throw new WeightsError('wrong', `${root} has more than ${DEPTH_MAX} levels of directories`);
    const here = await onSource(() => realpath(join(root, folder)), signal);
    // A symlink to a parent folder would otherwise be followed without end.
    if (above.includes(here)) return;
    const entries = await onSource(() => readdir(here, { withFileTypes: true }), signal);
    for (const entry of entries) {
      const name = folder === '' ? entry.name : `${folder}/${entry.name}`;
      if (entry.name.startsWith('.')) continue;
      if (!isSafePath(name))
        throw new WeightsError('wrong', `${join(root, dirname(name))} contains a file name that cannot be served`);
      const found = entry.isSymbolicLink() ? await onSource(() => stat(join(root, name)), signal) : entry;
      if (found.isDirectory()) await walk(name, [...above, here]);
      else if (found.isFile()) names.push(name);
      if (names.length > FILES_MAX) throw new WeightsError('wrong', `${root} contains more than ${FILES_MAX} files`);
    }
  };
  await walk('', []);
  return names;
}
