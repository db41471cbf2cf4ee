/** The directory of `serve --release`, with the files of a release. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReleaseFiles } from '../../../install/install-routes.ts';
import type { InstallableFile } from '../../../install/install-script.ts';

interface Described {
  version: string;
  file: Promise<InstallableFile>;
}

/** Digests are computed once for each version of a file. Names come from INSTALL_FILES, so there are few. */
export class ReleaseDirectory implements ReleaseFiles {
  readonly #directory: string;
  readonly #described = new Map<string, Described>();

  constructor(directory: string) {
    this.#directory = directory;
  }

  async describe(name: string): Promise<InstallableFile | undefined> {
    const path = join(this.#directory, name);
    const found = await stat(path).catch(() => undefined);
    if (found?.isFile() !== true) return undefined;
    const version = `${found.size} ${found.mtimeMs} ${found.ino}`;
    const known = this.#described.get(name);
    if (known?.version === version) return known.file;
    const file = digestOf(path).then((sha256) => ({ bytes: found.size, sha256 }));
    this.#described.set(name, { version, file });
    file.catch(() => this.#described.delete(name));
    return file;
  }

  open(name: string): ReadableStream<Uint8Array> {
    return Readable.toWeb(createReadStream(join(this.#directory, name))) as ReadableStream<Uint8Array>;
  }
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(path), hash);
  return hash.digest('hex');
}
