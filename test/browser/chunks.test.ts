import fc from 'fast-check';
import { expect, it } from 'vitest';
import { blocksOf, isTooIntricate } from '../../dashboard/chat/markdown/blocks.ts';
import { chunksOf } from '../../dashboard/chat/markdown/chunks.ts';

const paragraph = (n: number) => `Paragraph ${n}. ${'word '.repeat(60)}\n\n`;
const long = (from: number) => Array.from({ length: 20 }, (_, n) => paragraph(from + n)).join('');

it('a short text is one part, a long one is cut between paragraphs', () => {
  expect(chunksOf('Short.\n\nText.')).toEqual(['Short.\n\nText.']);
  const chunks = chunksOf(long(0));
  expect(chunks.length).toBeGreaterThan(1);
  for (const chunk of chunks) expect(chunk).toMatch(/^Paragraph \d+\. /);
});

it.each([
  ['code', '```\n', '```\n\n'],
  ['a formula', '$$\n', '$$\n\n'],
  ['a formula in brackets', '\\[\n', '\\]\n\n'],
])('%s with empty lines is not cut', (_, open, close) => {
  const inside = long(0);
  const chunks = chunksOf(`${open}${inside}${close}${long(20)}`);
  expect(chunks[0]).toContain(inside);
  expect(chunks[1]).toMatch(/^Paragraph 2\d/);
});

it.each([
  ['a list', '- item\n\n'],
  ['a numbered list', '1. item\n\n'],
  ['a quotation', '> said\n\n'],
  ['a list with stars', '* item\n\n'],
])('%s is not cut', (_, item) => {
  expect(chunksOf(item.repeat(2_000))).toHaveLength(1);
});

it('a text that grows gives what the whole text gives, and keeps its first parts', () => {
  const words = fc.array(
    fc.constantFrom(paragraph(1), '# Head\n\n', '- a\n\n', '```\n', '$$\n', 'Go on, ', '\n\n', '\\[', '\\]\n'),
    {
      minLength: 1,
      maxLength: 80,
    },
  );
  fc.assert(
    fc.property(words, (pieces) => {
      let [text, known]: [string, string[]] = ['', []];
      for (const piece of pieces) {
        text += piece;
        const next = chunksOf(text, known);
        expect(next.slice(0, known.length - 1)).toEqual(known.slice(0, -1));
        known = next;
      }
      expect(known).toEqual(chunksOf(text));
      expect(known.join('')).toBe(text);
    }),
  );
});

it('an edited text is cut anew', () => {
  const known = chunksOf(long(0));
  const other = long(50);
  expect(chunksOf(other, known)).toEqual(chunksOf(other));
});

it.each([
  ['quotations', '>'.repeat(3_000)],
  ['lists', '- '.repeat(3_000)],
  ['lists by indentation', Array.from({ length: 700 }, (_, n) => `${'  '.repeat(n)}- x`).join('\n')],
  ['links', '[a]('.repeat(8_000)],
  ['emphasis', '*a **b '.repeat(2_000)],
  ['code', Array.from({ length: 200 }, (_, n) => '`'.repeat(n + 1)).join('a')],
  ['inline formulas', '\\('.repeat(2_000)],
])('%s within each other are too intricate to be parsed', (_, text) => {
  expect(isTooIntricate(text)).toBe(true);
});

it('a long text with a sign that is never closed is split in linear time', () => {
  const text = `*${'a. '.repeat(60_000)}`;
  const began = performance.now();
  expect(blocksOf(text).flat().join('')).toBe(text);
  expect(performance.now() - began).toBeLessThan(5_000);
});

it('what people write is parsed: long lists, tables, code with many signs, lines', () => {
  const texts = [
    '- **a** and `b`\n'.repeat(500),
    `|a|b|\n|-|-|\n${'| *x* | [y](z) |\n'.repeat(400)}`,
    `\`\`\`c\n${'*p = a[i] * _x;\n'.repeat(3_000)}\`\`\``,
    `${'-'.repeat(200)}\n\n${'* '.repeat(20)}\n\n> > > x`,
  ];
  for (const text of texts) expect(isTooIntricate(text), text.slice(0, 40)).toBe(false);
  expect(blocksOf('# a\n\nb\r\n\r\n- c\n').map((pieces) => pieces.join('').trim())).toEqual([
    '# a',
    '',
    'b',
    '',
    '- c',
  ]);
});
