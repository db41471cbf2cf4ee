import { closeSync, constants, openSync } from 'node:fs';
import { basename, dirname } from 'node:path';

/** unix(7): `sun_path` has 108 bytes, the last of them zero. Job-private TMPDIRs are often longer. */
const SUN_PATH_MAX_BYTES = 107;

/**
 * Calls `use` with a path to the same socket that fits into an address. A longer path goes through the open directory
 * in /proc/self/fd, which is always short. The path is valid only until `use` has settled.
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
