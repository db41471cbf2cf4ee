import { FileTooLarge } from './file-store.ts';

/**
 * Splits content into parts of exactly `partBytes`, except for the last, as R2 requires for uploads. Only one part is
 * in memory.
 * @throws FileTooLarge above `maxBytes`
 */
export async function* splitIntoParts(
  content: AsyncIterable<Uint8Array>,
  partBytes: number,
  maxBytes: number,
): AsyncGenerator<Uint8Array<ArrayBuffer>, undefined> {
  let part = new Uint8Array(partBytes);
  let filled = 0;
  let bytes = 0;
  for await (const piece of content) {
    bytes += piece.length;
    if (bytes > maxBytes) throw new FileTooLarge(maxBytes);
    for (let at = 0; at < piece.length; ) {
      const taken = piece.subarray(at, at + partBytes - filled);
      part.set(taken, filled);
      filled += taken.length;
      at += taken.length;
      if (filled < partBytes) continue;
      yield part;
      part = new Uint8Array(partBytes);
      filled = 0;
    }
  }
  if (filled > 0) yield part.subarray(0, filled);
}
