import { expect, it } from 'vitest';
import { printable, printableJson } from '../../../shared/terminal/printable.ts';

it.each([
  ['moves the cursor', 'a\u001b[2Jb', 'a [2Jb'],
  ['begins a sequence in one character', 'a\u009b2Jb', 'a 2Jb'],
  ['sets a title', '\u001b]0;all is well\u0007x', ' ]0;all is well x'],
  ['begins lines of ours', 'lost\r\n2026-11-22  joined', 'lost 2026-11-22  joined'],
  ['turns the letters round', 'a\u202eb\u2066c', 'a b c'],
  ['is of any language', 'Zürich 東京 – naïve', 'Zürich 東京 – naïve'],
])('text that %s is one plain line', (_, said, shown) => {
  expect(printable(said)).toBe(shown);
});

it('JSON says the same without a control character', () => {
  const value = { reason: 'a\u001bb\u009b\u007f\u202ec', models: ['ö'] };
  const text = printableJson(value, 2);
  expect(JSON.parse(text)).toEqual(value);
  expect(text.replaceAll('\n', '')).toBe(printable(text.replaceAll('\n', '')));
});
