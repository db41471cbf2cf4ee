import { closeSync, constants, openSync } from 'node:fs';
import { basename, dirname } from 'node:path';

/** unix(7): `sun_path` has 108 bytes, and the last one is zero. TMPDIRs of jobs are often longer. */
const SUN_PATH_MAX_BYTES = 107;

/**
 * Calls `use` with a path to the same socket that fits into a socket address. A path that is too long is replaced by
 * one through an open directory in /proc/self/fd, which is always short. That path is valid only until `use` has
 * settled.
 */
export async function withShortPath<T>(path: string, use: (path: string) => Promise<T>): Promise<T> {
  if (Buffer.byteLength(path) <= SUN_PATH_MAX_BYTES || process.platform !== 'linux') return use(path);
  const fd = openSync(dirname(path), constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    return await use(`/proc/self/fd/${fd}/${basename(path)}`);
  } finally {
    closeSync(fd);
  }
}
