import { expect, test } from 'vitest';
import { LogTailBuffer } from '../../../agent/engine/log-tail-buffer.ts';

test('as plain text it keeps indentation and loses colors, control characters and what a progress bar overwrote', () => {
  const tail = new LogTailBuffer();
  tail.push(Buffer.from('\u001b[31mError\u001b[0m\n  File "x.py"\n 10 %\r 90 %\r\n\u0007end'));
  expect(tail.text(1_000)).toBe('Error\n  File "x.py"\n 90 %\nend');
  tail.push(Buffer.from('é'.repeat(100)));
  expect(Buffer.from(tail.text(51)).length).toBeLessThanOrEqual(153);
  expect(tail.text(51).length).toBeLessThanOrEqual(51);
});

test.each([
  ['in colors', '\u001b[32mINFO\u001b[0m loading\n'],
  ['in letters of two bytes', 'ééé\n'],
])('a line whose beginning is cut off is left out, also of text %s', (_, line) => {
  const rest = line.repeat(10);
  const printed = `key: half-of-a-secret\n${rest}`;
  const max = Buffer.byteLength(rest) + 10;
  const all = new LogTailBuffer();
  all.push(Buffer.from(printed));
  expect(all.text(max)).not.toContain('secret');
  // The tail cuts it at its own bound.
  const short = new LogTailBuffer(max);
  for (let n = 0; n < 3; n++) short.push(Buffer.from(printed));
  expect(short.text(max)).not.toContain('secret');
  expect(short.text(max).split('\n')).toHaveLength(11);
});

test('of a line longer than all that is told the first word is left out', () => {
  const tail = new LogTailBuffer();
  tail.push(Buffer.from(`a-secret and ${'words '.repeat(10)}`));
  expect(tail.text(70)).toBe(`and ${'words '.repeat(10)}`);
});
