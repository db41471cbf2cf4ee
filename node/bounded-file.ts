import { closeSync, openSync, readSync } from 'node:fs';

/**
 * Reads the text of a file, or of a pipe such as <(pass show token), which has no size before it is read.
 *
 * @throws Error if it cannot be read or is longer than `maxBytes`
 */
export function readBoundedFile(path: string, maxBytes: number): string {
  const buffer = Buffer.alloc(maxBytes + 1);
  const file = openSync(path, 'r');
  try {
    let length = 0;
    for (let read = 1; read > 0 && length < buffer.length; length += read)
      read = readSync(file, buffer, length, buffer.length - length, null);
    if (length > maxBytes) throw new Error(`it is longer than ${maxBytes} bytes`);
    return buffer.toString('utf8', 0, length);
  } finally {
    closeSync(file);
  }
}
