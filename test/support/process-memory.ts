/** Words in the memory of a process, as its core dump would have them. Linux; the process must be this user's. */
import { readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';

const PIECE_BYTES = 8 * 1024 * 1024;
/** Longer than any word that is looked for, in either encoding of V8's strings. */
const OVERLAP_BYTES = 128;

/** For each of the words, whether it is anywhere. */
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
