/**
 * A machine with only a base system: a directory in which programs are started by chroot, and in which every change is
 * visible.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, realpathSync, renameSync } from 'node:fs';
import { cp, mkdir, readdir, symlink, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { nodeBinary } from '../../packaging/node-binaries.ts';
import { which } from '../support/abilities.ts';
import { atEnd, Managed, type SpawnOptions, temporaryDirectory } from '../support/processes.ts';
import { ROOT } from '../support/where.ts';

const CACHE = join(ROOT, 'node_modules/.cache/otela');
/** No compiler, no git, no curl, no certificates. */
const PACKAGES = 'python3,python3-venv';
const PATH = '/usr/local/bin:/usr/bin:/bin';
export const PLATFORM = process.arch === 'arm64' ? 'linux-arm64' : 'linux-x64';

/** Debian's base system with Python. Made once. */
async function baseSystem(): Promise<string> {
  const base = join(CACHE, 'debian-trixie-minbase-python');
  if (existsSync(base)) return base;
  await mkdir(CACHE, { recursive: true });
  const unfinished = `${base}.${process.pid}`;
  const args = ['--quiet', '--variant=minbase', `--include=${PACKAGES}`, 'trixie', unfinished];
  execFileSync('mmdebstrap', args, { stdio: 'inherit' });
  renameSync(unfinished, base);
  return base;
}

export interface EmptyRoot {
  /** Its path on this machine. */
  path: string;
  /** Runs a command in it and returns the output. @throws Error if it fails */
  run(...command: string[]): string;
  start(command: string[], options?: SpawnOptions): Managed;
  /** Files that were added or changed in it since it was made. */
  changed(): Promise<string[]>;
}

/** `lower`: the initial content, by default the base system; it is not written to. */
export async function emptyRoot(lower?: string, asUser?: string): Promise<EmptyRoot> {
  const directory = await temporaryDirectory('otela-root');
  const [upper, work, path] = ['upper', 'work', 'root'].map((name) => join(directory, name));
  if (upper === undefined || work === undefined || path === undefined) throw new Error('three directories');
  for (const one of [upper, work, path]) await mkdir(one);
  const layers = `lowerdir=${lower ?? (await baseSystem())},upperdir=${upper},workdir=${work}`;
  execFileSync('mount', ['-t', 'overlay', 'overlay', '-o', layers, path]);
  atEnd(() => {
    execFileSync('umount', ['--lazy', path]);
  });
  const within = [which('chroot') ?? 'chroot', ...(asUser === undefined ? [] : [`--userspec=${asUser}`]), path];
  // None of this machine's environment reaches it.
  const clean = ['env', '-i', `PATH=${PATH}`, 'HOME=/root', 'LANG=C.UTF-8', 'OTELA_MESH=127.0.0.1'];
  return {
    path,
    run: (...command) =>
      execFileSync(within[0] ?? '', [...within.slice(1), ...clean, ...command], { encoding: 'utf8' }),
    start: (command, options) => new Managed([...within, ...clean, ...command], options),
    changed: async () => {
      const entries = await readdir(upper, { recursive: true, withFileTypes: true });
      return entries
        .filter((entry) => !entry.isDirectory())
        .map((entry) => relative(upper, join(entry.parentPath, entry.name)))
        .toSorted();
    },
  };
}

/** Node and npm, in the layout of nodejs.org's archive. */
export async function addNode(root: EmptyRoot): Promise<void> {
  await writeFile(join(root.path, 'usr/local/bin/node'), await nodeBinary(PLATFORM, CACHE), { mode: 0o755 });
  const npm = dirname(dirname(realpathSync(which('npm') ?? '')));
  await cp(npm, join(root.path, 'usr/local/lib/node_modules/npm'), {
    recursive: true,
    dereference: true,
  });
  await symlink('../lib/node_modules/npm/bin/npm-cli.js', join(root.path, 'usr/local/bin/npm'));
}
