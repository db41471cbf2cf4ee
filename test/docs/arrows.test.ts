/** Imports go one way: between programs, and between the rooms of each. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, sep } from 'node:path';
import { expect, it } from 'vitest';
import { ROOT } from '../support/where.ts';
import { read } from './markdown.ts';

/** Job scripts, the comments of a stream, the names of policies: nothing that would bring a pipeline into the page. */
const SHARED_WITH_PAGE = [
  'shared/slurm/',
  'shared/openai/wait-comment.ts',
  'shared/routing/policies/shipped.ts',
  'shared/lattice/departure.ts',
];
const PROGRAMS = ['gateway', 'agent', 'scheduler', 'factory', 'clients', 'dashboard', 'shared'];

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

it('no program imports another one, shared imports none, and the dashboard only what it says as others do', () => {
  const all = PROGRAMS.flatMap(importsOf);
  expect(all.length).toBeGreaterThan(1_000);
  const [crossing, others] = [new Set<string>(), new Set(PROGRAMS)];
  for (const { from, to } of all) {
    const [own, other = ''] = [from.split(sep)[0], to.split(sep)[0]];
    const seals = own === 'dashboard' && to.startsWith('clients/seal/');
    if (other !== own && other !== 'shared' && others.has(other) && !seals) crossing.add(`${from} → ${to}`);
    if (own === 'dashboard' && other === 'shared' && !SHARED_WITH_PAGE.some((place) => to.startsWith(place)))
      crossing.add(`${from} → ${to}`);
  }
  expect([...crossing]).toEqual([]);
});

/**
 * Each room of a program with those that it imports; a file beside the rooms counts as one. `gateway/env.ts` alone is left out: it
 * names the rooms' Durable Objects for their stubs, as types, and every room may name it.
 */
function roomsOf(program: string): Map<string, Set<string>> {
  const rooms = new Map<string, Set<string>>();
  for (const entry of readdirSync(join(ROOT, program), { withFileTypes: true }))
    if (entry.isDirectory() || /\.tsx?$/.test(entry.name)) rooms.set(entry.name, new Set());
  for (const { from, to } of importsOf(program)) {
    const [[, room = ''], [top, other = '']] = [from.split(sep), to.split(sep)];
    if (top === program && other !== room) rooms.get(room)?.add(other);
  }
  if (program === 'gateway') rooms.delete('env.ts');
  return rooms;
}

it.each(['shared', 'gateway', 'agent', 'factory', 'scheduler', 'dashboard'])(
  'no two rooms of %s need each other, directly or by way of others',
  (program) => {
    const rooms = roomsOf(program);
    for (let left = rooms.size; left > 0; left = rooms.size) {
      for (const [room, below] of rooms) if (![...below].some((other) => rooms.has(other))) rooms.delete(room);
      expect([...rooms.keys()].length, `a cycle among ${[...rooms.keys()].join(', ')}`).toBeLessThan(left);
    }
  },
);

it('what names the bindings of the gateway imports types alone', () => {
  expect(read('gateway/env.ts')).not.toMatch(/^(?:import|export) (?!type |interface )/m);
});
