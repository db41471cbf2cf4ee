/** This program as a file; another version may have been installed in its place. */
import { execFile } from 'node:child_process';
import { resolve } from 'node:path';
import { isSea } from 'node:sea';
import { promisify } from 'node:util';
import { DeploymentError } from '../../shared/deployment/deployment-error.ts';
import { errorText } from '../../shared/text/error-text.ts';

/** Node starts within a second, but shared file systems are slow. */
const ANSWER_MS = 200_000;
const OUTPUT_MAX_BYTES = 64 * 1024;

const run = promisify(execFile);

/** The command that started it, without its arguments. */
function currentCommand(): [string, ...string[]] {
  // If a link was used, it may point to another version by now.
  if (isSea()) return [process.argv0.includes('/') ? resolve(process.argv0) : process.execPath];
  return [process.execPath, ...process.execArgv, ...process.argv.slice(1, 2)];
}

/**
 * The version that is now installed there, by running it: a program that does not start is detected before this one
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
    throw new Error(`it says no version: ${stdout.slice(0, 200)}`);
  } catch (cause) {
    const why = errorText(cause);
    throw new DeploymentError('cannot_start', `the program that is installed here does not start: ${why}`, { cause });
  }
}

/** @throws DeploymentError cannot_start */
export async function requireInstalled(version: string, env: NodeJS.ProcessEnv): Promise<void> {
  const program = currentCommand();
  const installed = await installedVersion(program, env);
  if (installed === version) return;
  throw new DeploymentError(
    'cannot_start',
    `${program.at(-1)} is version ${installed} here, not ${version}: install it there first`,
  );
}

/**
 * Replaces this process by the installed program under the same process id, so that Slurm, systemd and Kubernetes see
 * no end. Returns only if that fails.
 */
export function reexecInstalled(env: NodeJS.ProcessEnv): Error {
  const program = currentCommand();
  try {
    if (process.execve === undefined) return new Error('this Node cannot');
    process.execve(program[0], [...program, ...process.argv.slice(2)], env);
  } catch (error) {
    return error instanceof Error ? error : new Error(String(error));
  }
  return new Error('it returned');
}
