/** What this machine can run. Tests that need root, Slurm or network namespaces print why they do not run. */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync, globSync } from 'node:fs';
import { delimiter, join } from 'node:path';

/** Directories of daemons that an ordinary PATH leaves out. */
const MORE_PATH = ['/usr/sbin', '/sbin'];

/** Full path of a program; undefined: not found. */
export function which(name: string): string | undefined {
  for (const directory of [...(process.env.PATH ?? '').split(delimiter), ...MORE_PATH]) {
    const path = join(directory, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // The program is not in this directory.
    }
  }
  return undefined;
}

/** The shell without windows needs two thirds of the CPU time of the whole browser, or less. */
export const CHROMIUM = process.env.OTELA_TEST_CHROMIUM ?? which('chromium-headless-shell') ?? which('chromium');

/** Debian's package installs the server's programs outside of PATH. */
export const POSTGRES = which('postgres') ?? globSync('/usr/lib/postgresql/*/bin/postgres').toSorted().at(-1);
export const NO_POSTGRES = POSTGRES === undefined ? 'not installed: postgresql' : undefined;

function missing(tools: string[]): string | undefined {
  const absent = tools.filter((tool) => which(tool) === undefined);
  return absent.length === 0 ? undefined : `not installed: ${absent.join(', ')}`;
}

function notRoot(): string | undefined {
  if (process.platform !== 'linux') return `needs Linux, this is ${process.platform}`;
  return process.getuid?.() === 0 ? undefined : 'needs root';
}

/**
 * Returns why this machine allows no network namespaces. Containers often forbid them, so this creates one: otherwise
 * twenty tests would fail without this reason.
 */
function noNamespaces(): string | undefined {
  const name = `otela-probe-${process.pid}`;
  const made = spawnSync('ip', ['netns', 'add', name], { encoding: 'utf8' });
  spawnSync('ip', ['netns', 'del', name]);
  return made.status === 0 ? undefined : `no network namespaces here: ${made.stderr.trim()}`;
}

/** Returns why a project of vitest.config.ts cannot run here; undefined if it can. */
export function cannotRun(project: string): string | undefined {
  switch (project) {
    case 'slurm':
      return notRoot() ?? missing(['slurmctld', 'slurmd', 'sbatch', 'squeue', 'munged', 'setpriv']);
    case 'postgresql':
      return NO_POSTGRES;
    case 'browser':
      return CHROMIUM === undefined ? 'not installed: chromium-headless-shell, chromium' : undefined;
    case 'release':
      return notRoot() ?? missing(['mmdebstrap', 'chroot', 'mount']);
    case 'netns':
      return notRoot() ?? missing(['ip', 'nft', 'python3']) ?? noNamespaces();
    default:
      return undefined;
  }
}

/** A Python that has this package: OTELA_TEST_PYTHON, otherwise that of `.ci/venv`, otherwise the machine's. */
export function pythonWith(
  root: string,
  name: 'cloudpickle' | 'openai' | 'prometheus_client' | 'pyhpke' | 'schemathesis',
): string | undefined {
  // Versions of cloudpickle before 3 have no such module member.
  const check = name === 'cloudpickle' ? 'from cloudpickle.cloudpickle import Pickler' : `import ${name}`;
  const candidates = [process.env.OTELA_TEST_PYTHON, join(root, '.ci/venv/bin/python'), which('python3')];
  return candidates.find(
    (python) => python !== undefined && existsSync(python) && spawnSync(python, ['-c', check]).status === 0,
  );
}
