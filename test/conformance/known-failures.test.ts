import { execFileSync } from 'node:child_process';
import { relative } from 'node:path';
import { expect, it } from 'vitest';
import { z } from 'zod';
import { ROOT } from '../support/where.ts';
import { KNOWN_FAILURES } from './known-failures.ts';

const listSchema = z.array(z.object({ name: z.string(), file: z.string() }));

/** The cases of `it.each` are one line of the list, with %s where each has its own words. */
function matches(template: string, name: string): boolean {
  let at = 0;
  const parts = template.split(/%[a-z]/);
  return parts.every((part, n) => {
    const found = n === parts.length - 1 && part !== '' ? name.lastIndexOf(part) : name.indexOf(part, at);
    const fits = n === 0 ? found === 0 : found >= at;
    at = found + part.length;
    return fits && (n < parts.length - 1 || part === '' || at === name.length);
  });
}

it('each known failure names a test that exists: else a renamed one would be expected to pass, and its line would stay for ever', () => {
  const list = ['vitest', 'list', '--project', 'conformance', '--json'];
  const printed = execFileSync('npx', list, { cwd: ROOT, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  const listed = listSchema.parse(JSON.parse(printed));
  const exists = (file: string, test: string) =>
    listed.some((one) => relative(`${ROOT}/test/conformance`, one.file) === file && matches(one.name, test));
  const named = KNOWN_FAILURES.flatMap(({ file, tests }) => tests.map((test) => [file, test] as const));
  expect(named.filter(([file, test]) => !exists(file, test))).toEqual([]);
  expect(exists('http/framing.test.ts', 'no such test')).toBe(false);
});
