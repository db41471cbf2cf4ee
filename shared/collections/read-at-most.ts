import { concat } from './concat.ts';

type Body = AsyncIterable<Uint8Array> | null;

/**
 * All bytes of a body. Undefined if there are more than `maxBytes`; then the rest is not read, and the body is closed.
 */
export async function readAtMost(body: Body, maxBytes: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const pieces: Uint8Array[] = [];
  let bytes = 0;
  for await (const piece of body ?? []) {
    bytes += piece.length;
    if (bytes > maxBytes) return undefined;
    pieces.push(piece);
  }
  return concat(pieces);
}

/** Like `readAtMost`, but returns UTF-8 text. A byte order mark is kept. */
export async function readTextAtMost(body: Body, maxBytes: number): Promise<string | undefined> {
  const bytes = await readAtMost(body, maxBytes);
  return bytes === undefined ? undefined : new TextDecoder('utf-8', { fatal: false, ignoreBOM: true }).decode(bytes);
}
