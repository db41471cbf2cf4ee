import type { Readable } from 'node:stream';

/** A request's body, held whole. Undefined where it broke off, and where `hold` refuses a chunk. */
export async function readWhole(content: Readable, hold: (chunk: Buffer) => boolean): Promise<Buffer | undefined> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of content) {
      if (!Buffer.isBuffer(chunk) || !hold(chunk)) return undefined;
      chunks.push(chunk);
    }
  } catch {
    return undefined; // the request was abandoned, and knows why
  }
  return Buffer.concat(chunks);
}
