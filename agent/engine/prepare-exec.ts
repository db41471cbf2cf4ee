/** Preparations between a command and its exec. */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, statSync } from 'node:fs';
import { join } from 'node:path';

type Env = Readonly<Record<string, string>>;

const IGNORE = '--ignore-signal=USR1';

/** env(1) does almost nothing here; a longer run means a file system that hangs. */
const ENV_TIMEOUT_MS = 20_000;

/**
 * Slurm sends a step's signals to every process in it. `--signal=USR1@120` without `B:`, meant for the agent, would end
 * an engine that has no handler for it. A signal that is ignored before exec stays ignored after it, and the process is
 * then the engine with its own argv. A shell's trap would do the same, but dash drops variables with invalid names from
 * the environment, and with them the `module` function of clusters. coreutils before 8.31 cannot do this: the engine
 * then gets the signal.
 */
export function withUsr1Ignored(command: readonly string[], env: Env): string[] {
  const [file = ''] = command;
  // env(1) would take these for an assignment or an option.
  if (file.includes('=') || file.startsWith('-')) return [...command];
  const tried = spawnSync('env', [IGNORE, 'true'], { env, stdio: 'ignore', timeout: ENV_TIMEOUT_MS });
  return tried.status === 0 ? ['env', IGNORE, ...command] : [...command];
}

/** Why exec would fail, or undefined. */
export function missingCommand(file: string, path: string | undefined): string | undefined {
  if (file.includes('/')) return isExecutable(file) ? undefined : `${file} is not there or not executable`;
  const directories = (path ?? '/usr/bin:/bin').split(':');
  const found = directories.some((directory) => isExecutable(join(directory || '.', file)));
  return found ? undefined : `no command "${file}" on the PATH`;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
