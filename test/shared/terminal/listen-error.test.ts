import { expect, test } from 'vitest';
import { listenError } from '../../../shared/terminal/listen-error.ts';

test.each([
  ['EADDRINUSE', '127.0.0.1:80 is in use'],
  ['EADDRNOTAVAIL', '127.0.0.1:80 is not an address of this machine'],
  ['EACCES', '127.0.0.1:80 can be opened only by root'],
])('an address that cannot be had, %s, is told with what to do', (code, words) => {
  const error = Object.assign(new Error(`listen ${code}: something`), { code });
  expect(listenError(error, { host: '127.0.0.1', port: 80 }).message).toContain(words);
  expect(listenError(new Error('other'), { host: '::1', port: 80 }).message).toBe('other');
});
