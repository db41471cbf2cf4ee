/** docs/reference/ is what the tables in the code say, and nothing else: else run `npm run docs:reference`. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { referencePages } from '../../packaging/reference/main.ts';
import { ROOT } from '../support/where.ts';
import { read } from './markdown.ts';

it('every generated page is up to date', async () => {
  const pages = await referencePages();
  expect(pages.size).toBeGreaterThan(5);
  expect(readdirSync(join(ROOT, 'docs/reference')).toSorted()).toEqual([...pages.keys()].toSorted());
  const stale = [...pages].filter(([name, text]) => read(join('docs/reference', name)) !== text).map(([name]) => name);
  expect(stale, 'run npm run docs:reference').toEqual([]);
});
