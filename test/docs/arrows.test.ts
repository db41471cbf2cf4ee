/** Which room imports which is what docs/architecture.md tells. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, sep } from 'node:path';
import { expect, it } from 'vitest';
import { ROOT } from '../support/where.ts';
import { read } from './markdown.ts';

const PROGRAMS = ['gateway', 'agent', 'scheduler', 'dashboard', 'shared'];

interface Import {
  from: string;
  to: string;
}

/** Of relative paths, as paths from the root. */
function importsOf(program: string): Import[] {
  const files = readdirSync(join(ROOT, program), { recursive: true, encoding: 'utf8' });
  return files
    .filter((name) => /\.tsx?$/.test(name))
    .flatMap((name) => {
      const from = join(program, name);
      const said = readFileSync(join(ROOT, from), 'utf8').matchAll(/(?:\bfrom |\bimport |\bimport\()'(\.[^']*)'/g);
      return [...said].map(([, path = '']) => ({ from, to: normalize(join(dirname(from), path)) }));
    });
}

/** `A, B and C on D`: what stands left of the verb, each with all that stands right of it. */
function arrowsTold(): Map<string, Set<string>> {
  const [, sentence = ''] = /Inside `shared`,([^.]*)\./.exec(read('docs/architecture.md')) ?? [];
  const names = (text = '') => [...text.matchAll(/`([a-z]+)`/g)].map(([, name = '']) => name);
  return new Map(
    sentence.split(';').flatMap((clause) => {
      const [left, right] = clause.split(/ on | import none /);
      return names(left).map((room) => [room, new Set(names(right))] as const);
    }),
  );
}

it('no program imports another one, shared imports none, and the dashboard only what writes job scripts', () => {
  const all = PROGRAMS.flatMap(importsOf);
  expect(all.length).toBeGreaterThan(1_000);
  const [crossing, others] = [new Set<string>(), new Set(PROGRAMS)];
  for (const { from, to } of all) {
    const [own, other = ''] = [from.split(sep)[0], to.split(sep)[0]];
    if (other !== own && other !== 'shared' && others.has(other)) crossing.add(`${from} → ${to}`);
    if (own === 'dashboard' && other === 'shared' && dirname(to) !== join('shared', 'slurm'))
      crossing.add(`${from} → ${to}`);
  }
  expect([...crossing]).toEqual([]);
});

it('the rooms of shared import those that the page names, and nothing else', () => {
  const found = new Map<string, Set<string>>();
  for (const entry of readdirSync(join(ROOT, 'shared'), { withFileTypes: true }))
    if (entry.isDirectory()) found.set(entry.name, new Set());
  for (const { from, to } of importsOf('shared')) {
    const [room = '', other = ''] = [from.split(sep)[1], to.split(sep)[1]];
    if (room !== other) found.get(room)?.add(other);
  }
  expect(found).toEqual(arrowsTold());
});

it('no two rooms of shared need each other, directly or by way of others', () => {
  const told = arrowsTold();
  for (let left = told.size; left > 0; left = told.size) {
    for (const [room, below] of told) if (![...below].some((other) => told.has(other))) told.delete(room);
    expect([...told.keys()].length, `a cycle among ${[...told.keys()].join(', ')}`).toBeLessThan(left);
  }
});
