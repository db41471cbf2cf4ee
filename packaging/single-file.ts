/**
 * The agent as one file that needs no Node: Node's own program with the bundled agent in an ELF note.
 * https://nodejs.org/docs/latest-v24.x/api/single-executable-applications.html
 */
import { execFile, spawnSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { neededVersions, withNote } from './elf.ts';

/** A marker in Node's program: Node looks for embedded code only if a 1 follows it. */
const FUSE = 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2:';
const NOTE = 'NODE_SEA_BLOB';

/**
 * The newest versions of symbols that a file may require. RHEL, Rocky and Alma 8 and Debian 10 have glibc 2.28; SLES 15
 * SP3 (2.31) and Ubuntu 20.04 have later ones. GLIBCXX_3.4.21 came with GCC 5, CXXABI_1.3.11 with GCC 7.
 */
export const FLOOR = { GLIBC: '2.28', GLIBCXX: '3.4.21', CXXABI: '1.3.11' } as const;
type Library = keyof typeof FLOOR;

const STARTS = 5;

/**
 * Makes the blob that Node runs at its start from the bundled agent. It has no code cache and no snapshot, because only
 * machines of the builder's kind could read them. `node`: path of a Node of the same version as the single file.
 */
export async function seaBlob(bundle: string, node: string): Promise<Buffer> {
  const work = await mkdtemp(join(tmpdir(), 'otela-sea-'));
  try {
    const [config, output] = [join(work, 'sea.json'), join(work, 'blob')];
    const settings = {
      // Only the bundle's file name, without its folder: the blob keeps it for stack traces, and the path of the
      // builder's clone must not be published.
      main: basename(bundle),
      output,
      disableExperimentalSEAWarning: true,
      // Ignores NODE_OPTIONS, which is meant for the user's own Node: an option that only the user's Node knows could
      // end the agent before it begins.
      execArgvExtension: 'none',
    };
    await writeFile(config, JSON.stringify(settings));
    await promisify(execFile)(node, ['--experimental-sea-config', config], { cwd: dirname(bundle) });
    return await readFile(output);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
}

/**
 * Returns a copy of `node` with the blob.
 *
 * @throws Error if the result would not run on the systems of `FLOOR`
 */
export function singleFile(node: Buffer, blob: Buffer): Buffer {
  const made = withNote(node, NOTE, blob);
  const fuse = made.indexOf(FUSE);
  const code = fuse + FUSE.length;
  if (fuse < 0 || made.indexOf(FUSE, code) >= 0 || made[code] !== '0'.charCodeAt(0))
    throw new Error('this binary of Node has no place for an embedded program');
  made[code] = '1'.charCodeAt(0);
  checkFloor(newestNeeded(made));
  return made;
}

/** The newest version of each library's symbols that a program requires. */
export function newestNeeded(program: Buffer): Partial<Record<Library, string>> {
  const newest: Partial<Record<Library, string>> = {};
  for (const symbol of [...neededVersions(program).values()].flat()) {
    const [, library, version = ''] = /^(GLIBC|GLIBCXX|CXXABI)_([\d.]+)$/.exec(symbol) ?? [];
    if (isLibrary(library) && isNewer(version, newest[library] ?? '0')) newest[library] = version;
  }
  return newest;
}

function checkFloor(needed: Partial<Record<Library, string>>): void {
  for (const [library, version] of Object.entries(needed))
    if (isLibrary(library) && isNewer(version, FLOOR[library]))
      throw new Error(
        `the file requires ${library}_${version}, but must run on systems with ${library}_${FLOOR[library]}`,
      );
}

function isLibrary(name: string | undefined): name is Library {
  return name !== undefined && Object.hasOwn(FLOOR, name);
}

function isNewer(version: string, than: string): boolean {
  return version.localeCompare(than, 'en', { numeric: true }) > 0;
}

/** Median time of `otela-agent version`, from start to end, in milliseconds. @throws Error if the file does not run */
export function startMs(file: string): number {
  const times = Array.from({ length: STARTS }, () => {
    const began = performance.now();
    const { status, stderr, error } = spawnSync(file, ['version'], { encoding: 'utf8' });
    if (status !== 0) throw new Error(`${file} does not run: ${error?.message ?? stderr}`);
    return performance.now() - began;
  });
  return times.sort((a, b) => a - b)[Math.floor(STARTS / 2)] ?? Number.NaN;
}
