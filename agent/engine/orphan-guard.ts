/**
 * Ends the engine's process group if the agent is killed (SIGKILL, out of memory) and can no longer end the engine
 * itself.
 *
 * A small shell waits on a pipe that only the agent holds. `setpriv --pdeathsig` would end only the engine's first
 * process: vLLM's workers would live on and keep the GPUs. It would also hide the error that a command does not exist.
 */
import type { ChildProcess } from 'node:child_process';
import { spawnSafely } from '../host/spawn-safely.ts';

/**
 * The first input line names the group to end. The next input is the line `off`, or the end of the pipe. Signals that
 * Slurm sends to every process of a job must not end this shell before the agent.
 */
const SCRIPT = `trap '' HUP INT QUIT TERM USR1 USR2 PIPE
read -r group || exit 0
read -r word
[ "$word" = off ] && exit 0
kill -s KILL -- "-$group"`;

export class OrphanGuard {
  readonly #shell: ChildProcess;
  #usable = true;

  /** Create the guard before the engine starts, so that the engine is never unguarded. */
  constructor(log: (line: string) => void) {
    // The shell gets its own session (setsid), so that signals to the agent's process group do not reach it. It
    // inherits none of the agent's open files.
    this.#shell = spawnSafely('sh', ['-c', SCRIPT], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
      env: { PATH: process.env.PATH },
    });
    this.#shell.on('error', (error) => {
      this.#usable = false;
      log(
        `the engine has no guard process (${error.message}): if this agent is killed with SIGKILL, the engine continues to run`,
      );
    });
    this.#shell.stdin?.on('error', () => {});
    this.#shell.unref();
  }

  watch(group: number): void {
    if (this.#usable) this.#shell.stdin?.write(`${group}\n`);
  }

  /** Call when the group has ended: the kernel may soon give its number to another group. */
  dismiss(): void {
    if (this.#usable) this.#shell.stdin?.end('off\n');
  }
}
