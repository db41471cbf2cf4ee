import { expect, test } from 'vitest';
import { wordsOf } from '../../dashboard/parts/shell-words.ts';

test.each([
  ['', []],
  ['  a  b\n c ', ['a', 'b', 'c']],
  [`--t '/my dir/x' b`, ['--t', '/my dir/x', 'b']],
  [`a"b c"'d'`, ['ab cd']],
  [`"say \\"hi\\" \\n"`, ['say "hi" \\n']],
  [`a\\ b $(id) \`x\``, ['a b', '$(id)', '`x`']],
  [`''`, ['']],
])('%j is split as a shell splits it', (line, words) => {
  expect(wordsOf(line)).toEqual(words);
});

test.each([`'open`, `"open`, 'end\\'])('%j is no line: something is not closed', (line) => {
  expect(wordsOf(line)).toBeUndefined();
});
