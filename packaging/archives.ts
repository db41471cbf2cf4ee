/** Archives whose bytes follow from the files in them: in order, with one date, and of no user. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { create } from 'tar';

interface Archive {
  /** Where `paths` lie. */
  cwd: string;
  /** Files, in the order in which they go in. */
  paths: string[];
  /** Seconds since 1970. */
  date: number;
  /** Default: true. */
  gzip?: boolean;
}

/** A tar file. */
export async function writeArchive(file: string, { cwd, paths, date, gzip = true }: Archive): Promise<void> {
  await create({ file, cwd, gzip, portable: true, noDirRecurse: true, mtime: new Date(date * 1_000) }, paths);
}

/** Paths of files below `directory`, in order. */
export async function filesBelow(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map((entry) => relative(directory, join(entry.parentPath, entry.name))).sort();
}

/** Piece by piece: an image is hundreds of MiB. */
export async function sha256OfFile(file: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}
