import { expect, test } from 'vitest';
import { textAfter } from '../../../gateway/cli/text-after.ts';

test('what a log has that the look before had not', () => {
  expect(textAfter('', 'a\nb\n')).toBe('a\nb\n');
  expect(textAfter('a\nb\n', 'a\nb\n')).toBe('');
  expect(textAfter('a\nb\n', 'a\nb\nc\n')).toBe('c\n');
  expect(textAfter('a\nb\n', 'b\nc\n')).toBe('c\n');
  expect(textAfter('a\nb\n', 'x\ny\n')).toBe('--- some output is missing here\nx\ny\n');
});

test('a long tail that moved on, and one whose first line is cut', () => {
  const lines = (from: number, to: number) =>
    Array.from({ length: to - from }, (_, n) => `line ${from + n}\n`).join('');
  expect(textAfter(lines(0, 4_000), lines(100, 4_010))).toBe(lines(4_000, 4_010));
  expect(textAfter(lines(0, 4_000), `cut ${lines(100, 4_010)}`)).toBe(lines(4_000, 4_010));
});

test('lines that repeat are each told once', () => {
  expect(textAfter('tick\ntick\n', 'tick\ntick\ntick\n')).toBe('tick\n');
});
