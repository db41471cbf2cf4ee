/**
 * Runs the installed version of this program. The file from which this process was started may have been replaced since
 * by another version.
 */
import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { isSea } from 'node:sea';
import { promisify } from 'node:util';
import { DeploymentError } from '../../shared/deployment/deployment-error.ts';
import { errorText } from '../../shared/text/error-text.ts';

/** Timeout of the installed program. Node starts within a second, but shared file systems are slow. */
const ANSWER_MS = 200_000;
const OUTPUT_MAX_BYTES = 64 * 1024;

const run = promisify(execFile);

/** The command that started this program, without its arguments. */
function currentCommand(): [string, ...string[]] {
  // argv0 is used because it may be a link, which now may point to another version. `execPath` is the file to which the
  // link pointed when this process started.
  if (isSea()) return [process.argv0.includes('/') ? resolve(process.argv0) : process.execPath];
  return [process.execPath, ...process.execArgv, ...process.argv.slice(1, 2)];
}

/**
 * Runs the installed program to learn its version. This also detects a program that cannot start, before this process
 * ends.
 * @throws DeploymentError cannot_start
 */
async function installedVersion(program: readonly string[], env: NodeJS.ProcessEnv): Promise<string> {
  const [file = '', ...args] = program;
  try {
    const { stdout } = await run(file, [...args, 'version'], {
      env,
      timeout: ANSWER_MS,
      maxBuffer: OUTPUT_MAX_BYTES,
      encoding: 'utf8',
    });
    const version = /\b\d+\.\d+\.\d+(?:-[\w.-]+)?\b/.exec(stdout)?.[0];
    if (version !== undefined) return version;
    throw new Error(`it does not print a version: ${stdout.slice(0, 200)}`);
  } catch (cause) {
    const why = errorText(cause);
    throw new DeploymentError('cannot_start', `the program installed here cannot be started: ${why}`, { cause });
  }
}

/** @throws DeploymentError cannot_start */
export async function requireInstalled(version: string, env: NodeJS.ProcessEnv): Promise<void> {
  const program = currentCommand();
  const installed = await installedVersion(program, env);
  if (installed === version) return;
  throw new DeploymentError(
    'cannot_start',
    `${program.at(-1)} has version ${installed} on this machine, not ${version}: install ${version} first`,
  );
}

/**
 * Replaces this process by the installed program under the same process id, so that Slurm, systemd and Kubernetes see
 * no end. Returns only on failure.
 */
export function reexecInstalled(env: NodeJS.ProcessEnv): Error {
  const program = currentCommand();
  try {
    if (process.execve === undefined) return new Error('this version of Node.js cannot replace the process');
    process.execve(program[0], [...program, ...process.argv.slice(2)], env);
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
  return new Error('it returned');
}
