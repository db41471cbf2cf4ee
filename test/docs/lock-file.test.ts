/** package-lock.json has exactly the entries with which npm takes archives from the configured registry. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { completeLock, lockFault } from '../../packaging/install/package-lock.ts';
import { ROOT } from '../support/where.ts';

const lock = (packages: Record<string, unknown>) =>
  `${JSON.stringify({ name: 'x', lockfileVersion: 3, packages }, null, 2)}\n`;
const refuse = () => {
  throw new Error('asked');
};

it('names the archive of each package, scoped, nested or under an alias', () => {
  const before = lock({
    '': { name: 'x', version: '1.0.0' },
    'node_modules/@a/b': { version: '1.2.3-beta', integrity: 'sha512-1' },
    'node_modules/c/node_modules/d': { version: '2.0.0', integrity: 'sha512-2', dev: true },
    'node_modules/alias': {
      name: '@e/f',
      version: '3.0.0',
      resolved: 'https://one.example/f.tgz',
      integrity: 'sha512-3',
    },
  });
  const after = lock({
    '': { name: 'x', version: '1.0.0' },
    'node_modules/@a/b': {
      version: '1.2.3-beta',
      resolved: 'https://registry.invalid/@a/b/-/b-1.2.3-beta.tgz',
      integrity: 'sha512-1',
    },
    'node_modules/c/node_modules/d': {
      version: '2.0.0',
      resolved: 'https://registry.invalid/d/-/d-2.0.0.tgz',
      integrity: 'sha512-2',
      dev: true,
    },
    'node_modules/alias': {
      name: '@e/f',
      version: '3.0.0',
      resolved: 'https://registry.invalid/@e/f/-/f-3.0.0.tgz',
      integrity: 'sha512-3',
    },
  });
  expect(completeLock(before, refuse)).toBe(after);
  expect([lockFault(before), lockFault(after)]).toEqual(['`resolved` is missing or names a host', undefined]);
});

it('leaves workspaces, links, packages inside another archive and those of other sources as they are', () => {
  const text = lock({
    'packaging/commands': { name: 'commands', version: '0.1.0' },
    'node_modules/commands': { resolved: 'packaging/commands', link: true },
    'node_modules/a/node_modules/b': { version: '1.0.0', inBundle: true },
    'node_modules/g': { version: '1.0.0', resolved: 'git+ssh://git@example.org/g.git#0123' },
  });
  expect(completeLock(text, refuse)).toBe(text);
  expect(lockFault(text)).toBeUndefined();
});

it('no archive is taken without its digest', () => {
  const text = lock({ 'node_modules/@a/b': { version: '1.0.0', optional: true } });
  expect(lockFault(text)).toBe('no integrity of @a/b');
  expect(completeLock(text, (name, version) => `sha512-${name}@${version}`)).toContain('"sha512-@a/b@1.0.0"');
});

it('npm asks the registry that is configured for what the lock file has on a placeholder host', () => {
  expect(readFileSync(join(ROOT, '.npmrc'), 'utf8')).toMatch(/^replace-registry-host=always$/m);
  expect(lockFault(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'))).toBeUndefined();
});
