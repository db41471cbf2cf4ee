/** The packages that `npm ci` and the scripts install. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'esbuild';
import { afterEach, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { ICONS, iconsFile } from '../../packaging/icons.ts';
import { ProgressLine } from '../../packaging/install/progress-line.ts';
import { missing } from '../../packaging/install/rest.js';
import { faults } from '../../packaging/install/sizes.ts';
import { ROOT } from '../support/where.ts';

const names = z.record(z.string(), z.string());
const { scripts, dependencies, devDependencies } = z
  .object({ scripts: names, dependencies: names, devDependencies: names })
  .parse(JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')));

afterEach(() => {
  vi.useRealTimers();
});

/** Packages that a program imports through its own files, including dynamic imports. */
async function packagesOf(entry: string): Promise<string[]> {
  const options = { bundle: true, write: false, metafile: true, logLevel: 'silent' } as const;
  const { metafile } = await build({
    ...options,
    absWorkingDir: ROOT,
    entryPoints: [entry],
    platform: 'node',
    format: 'esm',
    target: 'node24',
    packages: 'external',
    outdir: 'out',
    loader: { '.css': 'empty' },
    external: ['*.css', '*?worker&url'],
  });
  const paths = Object.values(metafile.inputs).flatMap(({ imports }) =>
    imports.filter(({ external }) => external).map(({ path }) => path),
  );
  return [
    ...new Set(
      paths.map((path) =>
        path
          .split('/')
          .slice(0, path.startsWith('@') ? 2 : 1)
          .join('/'),
      ),
    ),
  ];
}

const entries = Object.entries(scripts).map(([name, command]): [string, string, string[]] => [
  name,
  command,
  (command.match(/[\w./-]+\.tsx?\b/g) ?? []).filter((file) => existsSync(join(ROOT, file))),
]);

it.each(entries)('npm run %s brings the packages that its program imports', async (_, command, files) => {
  const imported = new Set((await Promise.all(files.map(packagesOf))).flat());
  const forDevelopers = [...imported].filter((name) => name in devDependencies);
  if (!command.includes('run.js --rest')) expect(forDevelopers).toEqual([]);
});

it('npm start and npm run build need no package for developers, and the page none', async () => {
  const programs = ['start.ts', 'build.ts', 'gateway/cli/main.ts', 'agent/cli/main.ts', 'factory/cli/main.ts'];
  const more = [
    'scheduler/cli/main.ts',
    'clients/otela/main.ts',
    'clients/seal/index.ts',
    'dashboard/main.tsx',
    'dashboard/chat/pdf-worker.ts',
  ];
  const imported = new Set((await Promise.all([...programs, ...more].map(packagesOf))).flat());
  expect([...imported].filter((name) => name in devDependencies)).toEqual([]);
  // Only style sheets import them.
  const unseen = /^(tailwindcss|@fontsource)/;
  expect(Object.keys(dependencies).filter((name) => !imported.has(name) && !unseen.test(name))).toEqual([]);
});

it('each large package that npm ci brings has its reason', () => {
  expect(faults()).toEqual([]);
});

it('dashboard/ui/icons.ts is what `npm run icons:generate` writes', () => {
  const bare = (text: string) => text.replaceAll(/[\s,]+/g, '');
  expect(bare(readFileSync(ICONS, 'utf8'))).toBe(bare(iconsFile()));
});

it('packages for developers are missing where they are not there or of another version; those of other systems are not', () => {
  const wanted = {
    'node_modules/a': { version: '1.0.0', dev: true },
    'node_modules/b': { version: '1.0.0', dev: true },
    'node_modules/c': { version: '1.0.0', dev: true },
    'node_modules/d': { version: '1.0.0', dev: true, optional: true },
    'node_modules/e': { version: '1.0.0' },
  };
  const there = { 'node_modules/a': { version: '1.0.0' }, 'node_modules/b': { version: '2.0.0' } };
  expect(missing(wanted, there)).toEqual(['node_modules/b', 'node_modules/c']);
  expect(missing(wanted, {})).toHaveLength(3);
});

it.each([
  [true, ['one …', '\r\x1b[2Kone … 1 s', '\r\x1b[2Kone … 2 s', '\r\x1b[2K', 'two …', '\r\x1b[2K']],
  [false, ['one …\n', 'one … 10 s\n', 'two …\n']],
])('a line lives while one waits; on a terminal (%s) each second', (isTTY, said) => {
  vi.useFakeTimers();
  const written: string[] = [];
  const line = new ProgressLine({ isTTY, write: (text) => written.push(text) });
  line.step('one');
  vi.advanceTimersByTime(isTTY ? 2_500 : 10_500);
  line.step('two');
  line.end();
  vi.advanceTimersByTime(60_000);
  expect(written).toEqual(said);
});
