/** Python packages of a function: installed once in the cluster, and copied to other nodes as one archive. */
import { createHash, randomUUID } from 'node:crypto';
import { mkdir, readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { create } from 'tar';
import { errorText } from '../../../shared/text/error-text.ts';
import {
  type ManifestFile,
  type WeightsManifest,
  weightsManifestSchema,
} from '../../../shared/weights/weights-manifest.ts';
import { WeightsError } from '../weights-error.ts';
import type { BlobSource, ReadFrom } from './blob-source.ts';
import { listingRevision, manifestFile } from './source-listing.ts';

interface PackingOptions {
  /** Text of the source. */
  source: string;
  /** Parent of the directory in which the packages are installed. It is on this node's disk. */
  scratch: string;
  /** Maximum duration of `install`. */
  withinMs: number;
  install(directory: string, signal: AbortSignal): Promise<void>;
}

const NAME = 'packages.tar';
/** A directory that a killed agent left is removed after this time. No installation takes as long. */
const LEFT_MS = 86_400_000;

/**
 * The archive exists only as a stream: it is read twice from the installed files, first for its digest, and then by the
 * pull. So each file is written once here, and once where it is unpacked.
 */
export class PackagesSource implements BlobSource {
  readonly listWithinMs: number;
  readonly #options: PackingOptions;
  #installed: string | undefined;

  constructor(options: PackingOptions) {
    this.#options = options;
    this.listWithinMs = options.withinMs;
  }

  async list(signal: AbortSignal): Promise<WeightsManifest> {
    const { source, scratch, install } = this.#options;
    try {
      await this.close();
      await mkdir(scratch, { recursive: true, mode: 0o700 });
      await removeLeft(scratch);
      const directory = join(scratch, randomUUID());
      this.#installed = directory;
      // An environment has a directory `bin`; see environmentPrefix.
      await mkdir(join(directory, 'bin'), { recursive: true, mode: 0o700 });
      await install(directory, signal);
      const hash = createHash('sha256');
      let size = 0;
      for await (const bytes of await archiveOf(directory)) {
        signal.throwIfAborted();
        hash.update(bytes);
        size += bytes.length;
      }
      const file = manifestFile(source, { path: NAME, size, sha256: hash.digest('hex'), stamp: '' });
      const revision = listingRevision([file]);
      return weightsManifestSchema.parse({ v: 1, source, revision, public: false, files: [file] });
    } catch (cause) {
      await this.close();
      throw new WeightsError(signal.aborted ? 'stopped' : 'wrong', errorText(cause), { cause });
    }
  }

  async *read({ key }: ManifestFile, { offset }: ReadFrom, signal: AbortSignal): AsyncGenerator<Uint8Array> {
    if (this.#installed === undefined) {
      // The node that packed them left before another node had the archive.
      const [file] = (await this.list(signal)).files;
      if (file?.key !== key)
        throw new WeightsError('changed', `${this.#options.source} was packed again, with other files`);
    }
    let skip = offset;
    for await (const bytes of await archiveOf(this.#installed ?? '')) {
      signal.throwIfAborted();
      if (skip < bytes.length) yield bytes.subarray(skip);
      skip = Math.max(0, skip - bytes.length);
    }
  }

  /** Removes the installed files. */
  async close(): Promise<void> {
    const directory = this.#installed;
    this.#installed = undefined;
    if (directory !== undefined) await rm(directory, { recursive: true, force: true });
  }
}

/** The files as a tar archive. Equal files make equal archives: their order and times are fixed. */
async function archiveOf(cwd: string): Promise<AsyncIterable<Buffer>> {
  const entries = await readdir(cwd, { recursive: true });
  return create({ cwd, portable: true, mtime: new Date(0), noDirRecurse: true, strict: true }, entries.sort());
}

async function removeLeft(scratch: string): Promise<void> {
  for (const name of await readdir(scratch)) {
    const path = join(scratch, name);
    const { mtimeMs } = await stat(path).catch(() => ({ mtimeMs: Date.now() }));
    if (Date.now() - mtimeMs > LEFT_MS) await rm(path, { recursive: true, force: true });
  }
}
