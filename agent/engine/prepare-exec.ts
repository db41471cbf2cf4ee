/** Prepares a command for exec: ignores SIGUSR1, and checks that the program exists. */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, statSync } from 'node:fs';
import { join } from 'node:path';

type Env = Readonly<Record<string, string>>;

const IGNORE = '--ignore-signal=USR1';

/** Time limit of env(1), which does almost nothing here. A longer run means that a file system hangs. */
const ENV_TIMEOUT_MS = 20_000;

/**
 * Slurm sends a step's signals to every process in it. `--signal=USR1@120` without `B:` is meant for the agent, but
 * would end an engine that has no handler for it. A signal that is ignored before exec stays ignored after it, and the
 * process still becomes the engine with its own argv. A shell's trap would do the same, but dash drops variables with
 * invalid names from the environment, among them the `module` function of clusters. coreutils before 8.31 cannot do
 * this, and the engine then gets the signal.
 */
export function withUsr1Ignored(command: readonly string[], env: Env): string[] {
  const [file = ''] = command;
  // env(1) would read such a program name as an assignment or as an option.
  if (file.includes('=') || file.startsWith('-')) return [...command];
  const tried = spawnSync('env', [IGNORE, 'true'], { env, stdio: 'ignore', timeout: ENV_TIMEOUT_MS });
  return tried.status === 0 ? ['env', IGNORE, ...command] : [...command];
}

/** Why exec would fail; undefined if it would not. */
export function missingCommand(file: string, path: string | undefined): string | undefined {
  if (file.includes('/')) return isExecutable(file) ? undefined : `${file} does not exist or is not executable`;
  const directories = (path ?? '/usr/bin:/bin').split(':');
  const found = directories.some((directory) => isExecutable(join(directory || '.', file)));
  return found ? undefined : `there is no command "${file}" on the PATH`;
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
