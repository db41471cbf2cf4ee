import { expect, test } from 'vitest';
import { appendedText } from '../../../gateway/cli/appended-text.ts';

test('what a log has that the look before had not', () => {
  expect(appendedText('', 'a\nb\n')).toBe('a\nb\n');
  expect(appendedText('a\nb\n', 'a\nb\n')).toBe('');
  expect(appendedText('a\nb\n', 'a\nb\nc\n')).toBe('c\n');
  expect(appendedText('a\nb\n', 'b\nc\n')).toBe('c\n');
  expect(appendedText('a\nb\n', 'x\ny\n')).toBe('--- some output is missing here\nx\ny\n');
});

test('a long tail that moved on, and one whose first line is cut', () => {
  const lines = (from: number, to: number) =>
    Array.from({ length: to - from }, (_, n) => `line ${from + n}\n`).join('');
  expect(appendedText(lines(0, 4_000), lines(100, 4_010))).toBe(lines(4_000, 4_010));
  expect(appendedText(lines(0, 4_000), `cut ${lines(100, 4_010)}`)).toBe(lines(4_000, 4_010));
});

test('lines that repeat are each told once', () => {
  expect(appendedText('tick\ntick\n', 'tick\ntick\ntick\n')).toBe('tick\n');
});
