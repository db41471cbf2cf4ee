/** docs/reference/ is what the tables in the code say, and nothing else: else run `npm run docs:reference`. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { referencePages } from '../../packaging/reference/main.ts';
import { ROOT } from '../support/where.ts';
import { markdownFiles, read } from './markdown.ts';

/** A word is what stands between white space and has a letter or a digit: table lines and dashes are none. Code counts; generated pages do not. */
const WORDS_MAX = 30_000;

it('every generated page is up to date', async () => {
  const pages = await referencePages();
  expect(pages.size).toBeGreaterThan(5);
  expect(readdirSync(join(ROOT, 'docs/reference')).toSorted()).toEqual([...pages.keys()].toSorted());
  const stale = [...pages].filter(([name, text]) => read(join('docs/reference', name)) !== text).map(([name]) => name);
  expect(stale, 'run npm run docs:reference').toEqual([]);
});

it(`the README and docs/ have ${WORDS_MAX} words at most, generated pages left out`, () => {
  const pages = markdownFiles().filter(
    (file) => file === 'README.md' || (file.startsWith('docs/') && !file.startsWith('docs/reference/')),
  );
  expect(pages.length).toBeGreaterThan(20);
  const words = pages.map(
    (file) =>
      read(file)
        .split(/\s+/)
        .filter((token) => /[\p{L}\p{N}]/u.test(token)).length,
  );
  expect(words.reduce((sum, one) => sum + one, 0)).toBeLessThanOrEqual(WORDS_MAX);
});
