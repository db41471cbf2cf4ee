import { expect, test } from 'vitest';
import { Tail } from '../../../agent/engine/tail.ts';

test('as plain text it keeps indentation and loses colours, control characters and what a progress bar overwrote', () => {
  const tail = new Tail();
  tail.push(Buffer.from('\u001b[31mError\u001b[0m\n  File "x.py"\n 10 %\r 90 %\r\n\u0007end'));
  expect(tail.text(1_000)).toBe('Error\n  File "x.py"\n 90 %\nend');
  tail.push(Buffer.from('é'.repeat(100)));
  expect(Buffer.from(tail.text(51)).length).toBeLessThanOrEqual(153);
  expect(tail.text(51).length).toBeLessThanOrEqual(51);
});
