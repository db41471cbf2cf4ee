/** Which tests a developer's change is most likely to break: those of the rooms that it touches. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';

/** Parts whose tests need no other program than this one, and whose folders mirror the rooms. */
const MIRRORED: ReadonlySet<string> = new Set(['shared', 'gateway', 'agent', 'scheduler', 'factory']);

/**
 * Test folders and files by part, for changed paths from the root. A room without a folder of its own has the tests of its part's root
 * alone: none are run, and `npm test -- PART` runs all.
 */
export function testsOf(changed: readonly string[], root: string): Map<string, string[]> {
  const tests = new Map<string, Set<string>>();
  const add = (part: string, path: string) => {
    const known = tests.get(part) ?? new Set();
    known.add(path);
    tests.set(part, known);
  };
  for (const path of changed) {
    const [top = '', room = ''] = path.split('/');
    if (MIRRORED.has(top)) {
      const folder = `test/${top}/${room}`;
      if (existsSync(join(root, folder))) add(top, `${folder}/`);
    } else if (top === 'docs' || path.endsWith('.md')) add('docs', 'test/docs/links.test.ts');
    else if (top === 'test' && path.endsWith('.test.ts') && existsSync(join(root, path))) add(room, path);
  }
  return new Map([...tests].map(([part, paths]) => [part, [...paths].toSorted()]));
}
