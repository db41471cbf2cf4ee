import { parseArgs } from 'node:util';
import { expect, test } from 'vitest';
import { listenError } from '../../../shared/terminal/listen-error.ts';
import { wrongUse } from '../../../shared/terminal/wrong-use.ts';

const options = { port: { type: 'string' }, quiet: { type: 'boolean' } } as const;

test.each([
  [['--prot', '1'], 'there is no flag --prot here'],
  [['-x'], 'there is no flag -x here'],
  [['word'], '"word" is one word too many'],
  [['--port'], '--port needs a value'],
  [['--port', '--quiet'], '--port needs a value'],
  [['--quiet=1'], '--quiet takes no value'],
])('%j', (args, words) => {
  try {
    parseArgs({ args, options });
    expect.unreachable();
  } catch (error) {
    expect(wrongUse(error)).toBe(words);
  }
});

test('another error is not about the command line', () => {
  expect(wrongUse(new TypeError('x'))).toBeUndefined();
  expect(wrongUse(new Error('x'))).toBeUndefined();
});

test.each([
  ['EADDRINUSE', '127.0.0.1:80 is in use'],
  ['EADDRNOTAVAIL', '127.0.0.1:80 is no address of this machine'],
  ['EACCES', '127.0.0.1:80 may be opened by root alone'],
])('an address that cannot be had, %s, is told with what to do', (code, words) => {
  const error = Object.assign(new Error(`listen ${code}: something`), { code });
  expect(listenError(error, { host: '127.0.0.1', port: 80 }).message).toContain(words);
  expect(listenError(new Error('other'), { host: '::1', port: 80 }).message).toBe('other');
});
