/**
 * In a clone the page is rebuilt if one of its sources is newer, so the sources must include all files that it imports.
 */
import { globSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, it } from 'vitest';
import { PAGE_SOURCES } from '../../gateway/hosts/node/serve/program-files.ts';
import { ROOT } from '../support/where.ts';

const isSource = (path: string) => PAGE_SOURCES.some((source) => path === source || path.startsWith(`${source}/`));

it('all that the page imports of this repository decides whether the page is stale', () => {
  const importsOf = (file: string) =>
    [...readFileSync(join(ROOT, file), 'utf8').matchAll(/(?:from|import\() *'(\.[^']+)'/g)].map(([, path = '']) =>
      normalize(join(dirname(file), path)),
    );
  const left = globSync('dashboard/**/*.{ts,tsx}', { cwd: ROOT });
  expect(left.length).toBeGreaterThan(100);
  const seen = new Set(left);
  for (const file of left)
    for (const path of importsOf(file)) {
      if (seen.has(path) || !/\.tsx?$/.test(path)) continue;
      seen.add(path);
      left.push(path);
    }
  expect([...seen].filter((path) => !isSource(path))).toEqual([]);
});
