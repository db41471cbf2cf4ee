/** Pictures of recorded terminal sessions. */
import { expect, it } from 'vitest';
import { terminalSvg } from '../../../shared/text/terminal-svg.ts';

/** Texts of the picture, in the order of their appearance; those of the last picture end with `|`. */
function texts(columns: number, ...events: [number, string][]): string[] {
  const found = terminalSvg({ columns, events }).matchAll(/preserve"( opacity="0")?>([^<]*)</g);
  return [...found].map(([, hidden, text]) => `${text}${hidden === undefined ? '|' : ''}`);
}

it('a line that lives is replaced, and the last text of each row stays', () => {
  expect(
    texts(40, [0, '$ up\r\n'], [1, 'waits'], [2, '\r\u001b[2Kloads'], [3, '\r\u001b[2K'], [4, 'ready\r\n']),
  ).toEqual(['$ up|', 'waits', 'loads', 'ready|']);
  expect(texts(40, [0, 'abc\rX'], [1, '\u001b[K'])).toEqual(['Xbc', 'X|']);
  expect(texts(40, [0, 'abc\r\u001b[2Kd'])).toEqual(['d|']);
});

it('long lines continue in the next row, and colors and other codes leave no trace', () => {
  expect(texts(4, [0, 'abcdef'])).toEqual(['abcd|', 'ef|']);
  expect(texts(40, [0, '\u001b[1;32mgreen\u001b[0m \u001b]0;title\u0007x\u001b[?25l'])).toEqual(['green 0;titlex|']);
});

it('what was typed cannot be markup', () => {
  const svg = terminalSvg({ columns: 80, events: [[0, '<script>alert("1")</script> & \u0000']] });
  expect(svg).not.toContain('<script');
  expect(svg).toContain('&#60;script&#62;alert(&#34;1&#34;)&#60;/script&#62; &#38;');
});

it('long pauses are shortened, and rows are bounded', () => {
  const svg = terminalSvg({
    columns: 80,
    events: [
      [0, 'a\n'],
      [3_600, 'b'],
    ],
  });
  expect(svg).toContain('dur="7.50s"');
  const many = terminalSvg({ columns: 80, events: [[0, 'x\n'.repeat(500)]] });
  expect(many.match(/<text /g)).toHaveLength(120);
});
