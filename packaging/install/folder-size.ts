import { lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

const BLOCK_BYTES = 512;

export interface Size {
  /** Bytes of the files' contents, as in an archive. */
  bytes: number;
  /** Bytes on disk: the file system rounds each file up to whole blocks. */
  diskBytes: number;
}

/**
 * Sums everything below `path`, without folders named `except`; a file with several hard links counts once. Zero if the
 * path does not exist.
 */
export function sizeOf(path: string, except?: string, seen = new Set<number>()): Size {
  const self = lstatSync(path, { throwIfNoEntry: false });
  if (self === undefined || (self.nlink > 1 && self.isFile() && seen.has(self.ino))) return { bytes: 0, diskBytes: 0 };
  seen.add(self.ino);
  const own = { bytes: self.isFile() ? self.size : 0, diskBytes: self.blocks * BLOCK_BYTES };
  if (!self.isDirectory()) return own;
  const below = readdirSync(path).filter((name) => name !== except);
  return below.reduce((sum, name) => {
    const { bytes, diskBytes } = sizeOf(join(path, name), except, seen);
    return { bytes: sum.bytes + bytes, diskBytes: sum.diskBytes + diskBytes };
  }, own);
}

export const MIB = 2 ** 20;
export const mib = (bytes: number): string => (bytes / MIB).toFixed(1).padStart(6);
