/**
 * Ends the engine's process group if the agent dies without being able to do that itself (SIGKILL, out of memory).
 *
 * A small shell waits on a pipe that only the agent holds. `setpriv --pdeathsig` would only end the engine's first
 * process: vLLM's workers would live on and keep the GPUs. It would also hide a clear "no such command".
 */
import type { ChildProcess } from 'node:child_process';
import { spawnSafely } from '../host/spawn-safely.ts';

/**
 * Line 1: the group to end. Then the line `off`, or the end of the pipe. Signals that Slurm sends to every process of a
 * job must not end the guard before the agent.
 */
const SCRIPT = `trap '' HUP INT QUIT TERM USR1 USR2 PIPE
read -r group || exit 0
read -r word
[ "$word" = off ] && exit 0
kill -s KILL -- "-$group"`;

export class ProcessGuard {
  readonly #shell: ChildProcess;
  #usable = true;

  /** Started before the engine, so that the engine always has a guard. */
  constructor(log: (line: string) => void) {
    // Its own session, so that a signal to the agent's process group does not reach it. It keeps none of our files
    // open.
    this.#shell = spawnSafely('sh', ['-c', SCRIPT], {
      detached: true,
      stdio: ['pipe', 'ignore', 'ignore'],
      env: { PATH: process.env.PATH },
    });
    this.#shell.on('error', (error) => {
      this.#usable = false;
      log(`no guard for the engine (${error.message}): it would survive this agent if that were killed with SIGKILL`);
    });
    this.#shell.stdin?.on('error', () => {});
    this.#shell.unref();
  }

  watch(group: number): void {
    if (this.#usable) this.#shell.stdin?.write(`${group}\n`);
  }

  /** The group has ended, and the kernel may soon give its number to another one. */
  dismiss(): void {
    if (this.#usable) this.#shell.stdin?.end('off\n');
  }
}
