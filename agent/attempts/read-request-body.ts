import type { Readable } from 'node:stream';

/** Reads a request's whole body. Returns undefined if it ended early, or if `hold` returned false for a chunk. */
export async function readWhole(content: Readable, hold: (chunk: Buffer) => boolean): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of content) {
      if (!Buffer.isBuffer(chunk) || !hold(chunk)) return undefined;
      chunks.push(chunk);
    }
  } catch {
    return undefined; // the request was abandoned; its attempt has the reason
  }
  return Buffer.concat(chunks);
}
