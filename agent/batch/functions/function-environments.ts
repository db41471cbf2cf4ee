/**
 * Packed environments of functions: a Python with its packages, which the function's owner packed. The gateway has the
 * archive in pieces. No program of it runs while it is unpacked.
 */
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { ENVIRONMENT_PIECE_BYTES } from '../../../shared/batch/function-files.ts';
import type { CopyFile } from './staged-files.ts';

/** Unpacks an archive into a directory that does not exist yet. @throws Error */
export type Unpack = (archive: string, directory: string, signal: AbortSignal) => Promise<void>;

export interface PackedEnvironment {
  /** Of the archive. */
  sha256: string;
  /** Ids of the gateway's files with its pieces, in their order. At most ENVIRONMENT_PIECES_MAX. */
  pieces: readonly string[];
  /** Copies a piece from the gateway. */
  copy: CopyFile;
}

/** Directory of the environment, in one that has nothing else. */
const NAME = 'environment';

/** Copies the archive from the gateway, and unpacks it below `directory`, which exists. @throws Error */
export async function installEnvironment(
  { sha256, pieces, copy }: PackedEnvironment,
  directory: string,
  unpack: Unpack,
  signal: AbortSignal,
): Promise<void> {
  // Beside the directory, because all that is in it is copied to other nodes.
  const [archive, piece] = [`${directory}.archive`, `${directory}.piece`];
  const hash = createHash('sha256');
  try {
    for (const id of pieces) {
      signal.throwIfAborted();
      await rm(piece, { force: true });
      await copy(id, piece, ENVIRONMENT_PIECE_BYTES);
      for await (const bytes of createReadStream(piece, { signal })) hash.update(bytes);
      await pipeline(createReadStream(piece), createWriteStream(archive, { flags: 'a', mode: 0o600 }), { signal });
    }
    if (hash.digest('hex') !== sha256)
      throw new Error('the pieces of the environment are not the archive that the function declares');
    await unpack(archive, join(directory, NAME), signal);
  } finally {
    await Promise.all([rm(archive, { force: true }), rm(piece, { force: true })]);
  }
}

/** The Python of an environment that `installEnvironment` unpacked; undefined: it has none. */
export async function pythonIn(directory: string): Promise<string | undefined> {
  const root = join(directory, NAME);
  // Archives have the environment's files, or one directory with them.
  const [only, ...others] = await readdir(root);
  const places = [root, ...(only !== undefined && others.length === 0 ? [join(root, only)] : [])];
  for (const place of places) {
    const python = join(place, 'bin/python');
    if ((await stat(python).catch(() => undefined))?.isFile() === true) return python;
  }
  return undefined;
}
