import { expect, test } from 'vitest';
import { Table } from '../../../gateway/cli/table.ts';

function printed(rows: readonly (readonly string[])[]): string[] {
  const lines: string[] = [];
  const table = new Table(['id', 'bytes', 'name'], (line) => lines.push(line));
  for (const row of rows) table.add(row);
  table.flush();
  return lines;
}

test('columns have a head and one width, and what a stranger named stays in its line', () => {
  expect(
    printed([
      ['a', '1048576', 'one'],
      ['long-id', '7', 'x\ny\u001b[31m'],
    ]),
  ).toEqual(['id       bytes    name', 'a        1048576  one', expect.stringMatching(/^long-id {2}7 {8}x\P{Cc}*$/u)]);
});

test('an empty list is its head', () => {
  expect(printed([])).toEqual(['id  bytes  name']);
});

test('a long list is not kept until its end, and a cell that is wider later makes its column wider', () => {
  const lines: string[] = [];
  const table = new Table(['id', 'name'], (line) => lines.push(line));
  for (let n = 0; n < 150; n++) table.add([`${n}`, 'x']);
  expect(lines.length).toBeGreaterThan(99);
  table.add(['a-much-longer-id', 'x']);
  table.flush();
  expect(lines).toHaveLength(152);
  expect(lines.at(-1)).toBe('a-much-longer-id  x');
  expect(lines.at(-2)).toBe('149               x');
});
