/** What the chat reads aloud. */
import { expect, it } from 'vitest';
import { spokenPieces, spokenText } from '../../dashboard/chat/voice/spoken-text.ts';

it('leaves out code, and the marks of Markdown', () => {
  const answer =
    '# Title\n\nSee **this** [page](https://x.org/a) and `x`:\n\n```py\nprint(1)\n```\n\n- one\n- two\n\n> said';
  expect(spokenText(answer)).toBe('Title See this page and x: one two said');
  expect(spokenText('Before\n```py\nnever closed')).toBe('Before');
});

it('ends pieces with a sentence or a word, and loses nothing', () => {
  const sentences = 'It is so. '.repeat(300).trim();
  const pieces = spokenPieces(sentences);
  expect(pieces.join(' ')).toBe(sentences);
  expect(pieces.every((piece) => piece.length <= 1_000 && piece.endsWith('.'))).toBe(true);
  const endless = 'x'.repeat(2_500);
  expect(spokenPieces(endless).join('')).toBe(endless);
  expect(spokenPieces('')).toEqual([]);
});
