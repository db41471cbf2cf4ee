/**
 * Searches the memory of a process for words, as they would be in its core dump. Linux only; the process must belong to
 * this user.
 */
import { readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';

const PIECE_BYTES = 8 * 1024 * 1024;
/** Overlap of two reads. It is longer than any searched word in either of V8's string encodings. */
const OVERLAP_BYTES = 128;

/** Returns for each word whether it is in the memory. */
export async function inMemory(pid: number, words: readonly string[]): Promise<boolean[]> {
  const memory = await open(`/proc/${pid}/mem`, 'r');
  const found = words.map(() => false);
  try {
    for (const line of readFileSync(`/proc/${pid}/maps`, 'utf8').split('\n')) {
      const [, from = '', to = '', flags = ''] = /^([0-9a-f]+)-([0-9a-f]+) (\S+)/.exec(line) ?? [];
      if (!flags.startsWith('rw')) continue;
      const [start, end] = [Number.parseInt(from, 16), Number.parseInt(to, 16)];
      for (let at = start; at < end; at += PIECE_BYTES - OVERLAP_BYTES) {
        const piece = Buffer.alloc(Math.min(PIECE_BYTES, end - at));
        const { bytesRead } = await memory.read(piece, 0, piece.length, at).catch(() => ({ bytesRead: 0 }));
        const read = piece.subarray(0, bytesRead);
        for (const [n, word] of words.entries()) found[n] ||= read.includes(word) || read.includes(word, 0, 'utf16le');
      }
    }
  } finally {
    await memory.close();
  }
  return found;
}
