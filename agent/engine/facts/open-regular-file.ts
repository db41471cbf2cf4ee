/** Reads files at paths from an engine or a command line. Such a path may name a pipe or a device. */
import { constants } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';

/**
 * Passes the open file to `read`. Undefined if there is no such file, or `read` failed. A pipe or a device is not read,
 * because that could take forever; O_NONBLOCK keeps the opening of a pipe from waiting for a writer.
 */
export async function withRegularFile<T>(
  path: string,
  read: (file: FileHandle, bytes: number) => Promise<T>,
): Promise<T | undefined> {
  let file: FileHandle | undefined;
  try {
    file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const found = await file.stat();
    return found.isFile() ? await read(file, found.size) : undefined;
  } catch {
    return undefined;
  } finally {
    await file?.close().catch(() => {});
  }
}

/** The file's text; undefined if it cannot be read, or is longer than `maxBytes`. */
export function readRegularFile(path: string, maxBytes: number): Promise<string | undefined> {
  return withRegularFile(path, async (file, bytes) => {
    if (bytes > maxBytes) return undefined;
    // The file may grow while it is read, so one byte more than allowed is asked for.
    const content = await readAt(file, 0, Math.min(bytes, maxBytes) + 1);
    return content.length > maxBytes ? undefined : content.toString('utf8');
  });
}

/** Up to `length` bytes from `position`; fewer at the end of the file. */
export async function readAt(file: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  let filled = 0;
  while (filled < length) {
    const { bytesRead } = await file.read(buffer, filled, length - filled, position + filled);
    if (bytesRead === 0) break;
    filled += bytesRead;
  }
  return buffer.subarray(0, filled);
}
