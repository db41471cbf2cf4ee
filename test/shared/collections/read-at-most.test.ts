import { expect, it } from 'vitest';
import { readAtMost, readTextAtMost } from '../../../shared/collections/read-at-most.ts';

const bytesOf = (text: string) => new TextEncoder().encode(text);

it('reads a body of exactly the limit', async () => {
  async function* body() {
    yield bytesOf('ab');
    yield bytesOf('c');
  }
  expect(await readAtMost(body(), 3)).toEqual(bytesOf('abc'));
  expect(await readAtMost(null, 0)).toEqual(new Uint8Array());
});

it('stops at the piece that exceeds the limit, and closes the body', async () => {
  const read: string[] = [];
  async function* body() {
    try {
      for (const text of ['ab', 'cd', 'ef']) {
        read.push(text);
        yield bytesOf(text);
      }
    } finally {
      read.push('closed');
    }
  }
  expect(await readAtMost(body(), 3)).toBeUndefined();
  expect(read).toEqual(['ab', 'cd', 'closed']);
});

it('decodes a character whose bytes are in two pieces, and keeps a byte order mark', async () => {
  const [first, ...rest] = bytesOf('é');
  async function* body() {
    yield bytesOf('\ufeff');
    yield Uint8Array.of(first ?? 0);
    yield Uint8Array.from(rest);
  }
  expect(await readTextAtMost(body(), 10)).toBe('\ufeffé');
});
