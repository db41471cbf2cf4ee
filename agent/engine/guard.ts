/**
 * Ends the engine's process group when the agent dies without a chance to do so itself (SIGKILL, out of memory).
 *
 * A small shell waits on a pipe that only the agent holds. `setpriv --pdeathsig` would do for the engine's first
 * process alone: vLLM's workers would live on and keep the GPUs, and it would stand in the way of a clear "no such command".
 */
import type { ChildProcess } from 'node:child_process';
import { spawnSafely } from '../host/spawn.ts';

/**
 * Line 1: the group to end. Line 2 `off`, or the end of the pipe. Signals that Slurm sends to every process of a job
 * must not end the guard before the agent.
 */
const SCRIPT = `trap '' HUP INT QUIT TERM USR1 USR2 PIPE
read -r group || exit 0
read -r word
[ "$word" = off ] && exit 0
kill -s KILL -- "-$group"`;

export class ProcessGuard {
  readonly #shell: ChildProcess;
  #usable = true;

  /** Started before the engine, so that there is no moment in which the engine has no guard. */
  constructor(log: (line: string) => void) {
    // Its own session: a signal to the agent's process group passes it by. It keeps no file of ours open.
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

  /** The group has ended: the kernel may give its number to another one soon. */
  dismiss(): void {
    if (this.#usable) this.#shell.stdin?.end('off\n');
  }
}
