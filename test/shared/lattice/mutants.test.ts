import { readFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { build, type Plugin } from 'esbuild';
import { describe, expect, test } from 'vitest';
import { ROOT } from '../../support/where.ts';
import type { Lattice } from './domain.ts';
import { LAWS, type LawName } from './laws.ts';
import { MUTANTS, type Mutant } from './mutants.ts';

const LATTICE = join(ROOT, 'shared/lattice');

/** The lattice with one mistake in it, as a separate module. */
async function grown(mutant: Mutant | undefined): Promise<Lattice> {
  const mutate: Plugin = {
    name: 'mutate',
    setup: (building) =>
      building.onLoad({ filter: /shared.lattice.[\w-]+\.ts$/ }, async ({ path }) => {
        const source = await readFile(path, 'utf8');
        if (basename(path) !== mutant?.file) return { contents: source, loader: 'ts' };
        const parts = source.split(mutant.find);
        if (parts.length !== 2) throw new Error(`"${mutant.find}" stands ${parts.length - 1} times in ${mutant.file}`);
        return { contents: parts.join(mutant.replace), loader: 'ts' };
      }),
  };
  const { outputFiles } = await build({
    entryPoints: [join(LATTICE, 'registry-replica.ts')],
    bundle: true,
    write: false,
    format: 'esm',
    target: 'es2024',
    logLevel: 'silent',
    plugins: [mutate],
  });
  const code = Buffer.from(outputFiles[0]?.contents ?? []).toString('base64');
  return import(/* @vite-ignore */ `data:text/javascript;base64,${code}`);
}

/** One of a few thousand tiny worlds must show the mistake; most mistakes show within the first hundred. */
const RUNS = 3000;
/** Always the same worlds, so that a mutant that only a rare world exposes is caught in every run or in none. */
const SEED = 20_261_120;

describe('The laws', () => {
  test('hold for the lattice when it is built the way mutants are', async () => {
    const sound = await grown(undefined);
    for (const law of Object.values(LAWS)) law.check(sound, 20);
  });

  for (const name of Object.keys(LAWS) as LawName[]) {
    for (const mutant of MUTANTS[name] ?? []) {
      test(`catch it when ${mutant.mistake}: a replica ${LAWS[name].says}`, async () => {
        const lattice = await grown(mutant);
        expect(() => LAWS[name].check(lattice, RUNS, SEED)).toThrow(LAWS[name].says);
      });
    }
  }
});
