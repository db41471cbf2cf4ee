import { expect, it } from 'vitest';
import { makeIo } from '../../../shared/terminal/command-io.ts';

it('writes lines without what would drive the terminal', () => {
  const written: string[] = [];
  const stream = { write: (text: string) => written.push(text), on: () => {} };
  const io = makeIo(stream, stream);
  io.out('a\u001b[2Jb\u0007\nc\u202e');
  io.log('d');
  expect(written).toEqual(['a [2Jb \nc \n', 'd\n']);
});
