/**
 * Which test files a change can break, computed from the sources. A file reaches everything that it names in a string:
 * an import, a page, a script, or a program that it starts; and transitively what those name.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';

/** Files that are searched for strings; other files reach nothing. */
const SOURCE = /\.(ts|tsx|toml|py|sh)$|^[^.]+$/;
/** A path relative to the file or to the root, in quotes of any kind. */
const QUOTED = /(['"`])((?:\.{1,2}\/)*[\w@.-]+(?:\/[\w@.-]+)*\/?)\1/g;
/** Comments are removed: a page that a comment quotes is not read. */
const COMMENT = /^\s*(\/\*\*|\*|\/\/).*$/gm;
/** The file that exports the path of each program. A file that imports such a path starts that program. */
const PROGRAMS = 'test/support/where.ts';
const PROGRAM = /export const (\w+) = programFile\('[^']*', '([^']+)'\)/g;
/** The build script. A file that names it runs it, and a file that names `dist/NAME` reaches that program. */
const BUILD = 'build.ts';
const BUILT = /'([\w-]+\.js)': '([^']+)'/g;

/** Files that a part's tests reach without naming them: the page in the browser, the runtime and its setup. */
const OF_PART: Readonly<Record<string, readonly string[]>> = {
  browser: ['dashboard/'],
  gateway: ['vitest.gateway.config.ts'],
  release: ['packaging/', 'clients/'],
  conformance: ['test/conformance/setup.ts', 'test/support/wrangler-gateway.ts'],
};

/**
 * Files that decide how everything is installed, built or run, so a change affects all tests. Files of test/ that the
 * runner and vitest's settings need have the same effect.
 */
const EVERYTHING =
  /^(package(-lock)?\.json|\.npmrc|tsconfig.*|vitest\..*|build\.ts|wrangler\.toml|migrations\/.*|\.ci\/.*)$/;
const RUNNER = ['test/run.ts', 'vitest.config.ts', 'vitest.gateway.config.ts'];
/** Files of test/ without that effect: they only choose, order and record tests. */
const CHOICE: ReadonlySet<string> = new Set(['test/tiers.ts', 'test/file-times.json']);
/** Files that tests of the docs read, because they check all pages. */
const PAGE = /\.(md|svg|png)$|^docs\/|^LICENSE$/;

export class Reach {
  /** For each file, the files that name it. */
  readonly #namers = new Map<string, Set<string>>();
  readonly #names = new Map<string, Set<string>>();
  readonly #files: ReadonlySet<string>;
  /** The entry of each program in dist/. */
  readonly #built: ReadonlyMap<string, string>;

  constructor(root: string) {
    const listed = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], {
      cwd: root,
      encoding: 'utf8',
      maxBuffer: 1 << 26,
    });
    this.#files = new Set(listed.split('\n').filter((path) => path !== ''));
    const read = (path: string) => readFileSync(join(root, path), 'utf8');
    const table = (path: string, row: RegExp) =>
      new Map([...read(path).matchAll(row)].map(([, name = '', file = '']) => [name, file]));
    const programs = table(PROGRAMS, PROGRAM);
    this.#built = table(BUILD, BUILT);
    for (const path of this.#files) {
      const part = /^test\/([^/]+)\/.*\.test\.ts$/.exec(path)?.[1];
      for (const more of OF_PART[part ?? ''] ?? []) this.#add(path, more);
      if (!SOURCE.test(path) || path === PROGRAMS || path === BUILD) continue;
      const text = read(path).replaceAll(COMMENT, '');
      for (const [, , name = ''] of text.matchAll(QUOTED)) this.#add(path, this.#resolved(path, name));
      if (!text.includes('/where.ts')) continue;
      for (const [name, program] of programs) if (text.includes(name)) this.#add(path, program);
    }
  }

  /** Path from the root. */
  #resolved(from: string, name: string): string {
    if (name.startsWith('dist/dashboard')) return 'dashboard/';
    if (name.startsWith('dist/')) return this.#built.get(name.slice('dist/'.length)) ?? BUILD;
    return normalize(name.startsWith('.') ? join(dirname(from), name) : name);
  }

  #add(from: string, to: string): void {
    // The gateway serves the built page, and does not read its sources.
    if (to.startsWith('dashboard/') && (from.startsWith('gateway/') || from === 'wrangler.toml')) return;
    // A folder is named with a slash; a single word is not a path.
    const all = this.#files.has(to) ? [to] : to.includes('/') ? this.#below(to) : [];
    for (const one of all) {
      this.#namers.set(one, (this.#namers.get(one) ?? new Set()).add(from));
      this.#names.set(from, (this.#names.get(from) ?? new Set()).add(one));
    }
  }

  #below(folder: string): string[] {
    const prefix = folder.endsWith('/') ? folder : `${folder}/`;
    return [...this.#files].filter((path) => path.startsWith(prefix));
  }

  #runner(): Set<string> {
    const found = new Set(RUNNER);
    for (const path of found)
      for (const next of this.#names.get(path) ?? []) if (next.startsWith('test/support/')) found.add(next);
    return found;
  }

  /** Test files that `changed`, paths from the root, can break; undefined: possibly all of them. */
  tests(changed: readonly string[]): ReadonlySet<string> | undefined {
    const runner = this.#runner();
    const read = changed.filter((path) => !CHOICE.has(path));
    const isUnknown = (path: string) =>
      EVERYTHING.test(path) || runner.has(path) || !(PAGE.test(path) || /\.tsx?$/.test(path) || this.#namers.has(path));
    if (read.some(isUnknown)) return undefined;
    const reached = new Set(read);
    for (const path of reached) for (const namer of this.#namers.get(path) ?? []) reached.add(namer);
    const pages = read.some((path) => PAGE.test(path));
    return new Set(
      [...this.#files].filter(
        (path) => path.endsWith('.test.ts') && (reached.has(path) || (pages && path.startsWith('test/docs/'))),
      ),
    );
  }
}
