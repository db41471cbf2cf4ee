/** Makes reproducible archives: sorted files, the same date for all, and no user. */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { create } from 'tar';

interface Archive {
  /** The directory that contains `paths`. */
  cwd: string;
  /** Files, in the order of the archive. */
  paths: string[];
  /** Date of all files, seconds since 1970. */
  date: number;
  /** Whether the archive is compressed; default: true. */
  gzip?: boolean;
}

/** Writes a tar file. */
export async function writeArchive(file: string, { cwd, paths, date, gzip = true }: Archive): Promise<void> {
  await create({ file, cwd, gzip, portable: true, noDirRecurse: true, mtime: new Date(date * 1_000) }, paths);
}

/** Sorted paths of the files below `directory`. */
export async function filesBelow(directory: string): Promise<string[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile());
  return files.map((entry) => relative(directory, join(entry.parentPath, entry.name))).sort();
}

/** SHA-256 of a file, which is read in pieces, because an image has hundreds of MiB. */
export async function sha256OfFile(file: string): Promise<string> {
  const hash = createHash('sha256');
  await pipeline(createReadStream(file), hash);
  return hash.digest('hex');
}
