/** Every link between files of this repository has an existing target and heading. */
import { existsSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ROOT } from '../support/where.ts';
import { anchorsOf, linksOf, markdownFiles, read } from './markdown.ts';

/** The fault of a link in this file; undefined: none. */
function broken(file: string, target: string): string | undefined {
  if (/^[a-z]+:/i.test(target)) return undefined;
  const [path = '', anchor] = target.split('#');
  const to = path === '' ? file : normalize(join(dirname(file), decodeURIComponent(path)));
  if (to.startsWith('..')) return `${target} leaves the repository`;
  if (!existsSync(join(ROOT, to))) return `${target}: there is no ${to}`;
  if (anchor === undefined || !to.endsWith('.md')) return undefined;
  return anchorsOf(read(to)).has(anchor) ? undefined : `${target}: ${to} has no such heading`;
}

describe.each(markdownFiles())('%s', (file) => {
  it('links to what is there', () => {
    const links = linksOf(read(file));
    expect(links.flatMap((link) => broken(file, link) ?? [])).toEqual([]);
  });
});

it('every page of docs/ can be reached from the README', () => {
  const seen = new Set<string>();
  const next = ['README.md'];
  for (let file = next.shift(); file !== undefined; file = next.shift()) {
    if (seen.has(file)) continue;
    seen.add(file);
    for (const link of linksOf(read(file))) {
      const [path = ''] = link.split('#');
      const to = normalize(join(dirname(file), path));
      if (to.endsWith('.md') && !/^[a-z]+:/i.test(link) && existsSync(join(ROOT, to))) next.push(to);
    }
  }
  expect(markdownFiles().filter((file) => file.startsWith('docs/') && !seen.has(file))).toEqual([]);
});

it('says so when a link leads nowhere', () => {
  expect(broken('docs/agent.md', 'nothing.md')).toContain('there is no docs/nothing.md');
  expect(broken('docs/agent.md', '#no-such-heading')).toContain('has no such heading');
  expect(broken('docs/agent.md', '../../elsewhere.md')).toContain('leaves the repository');
  expect(broken('docs/agent.md', 'agent.md#install')).toBeUndefined();
  expect([...anchorsOf('# A `b` & c\n# Twice\n# Twice\n')]).toEqual(['a-b--c', 'twice', 'twice-1']);
});
