/** Starts programs so that every failure is reported in the same way. */
import { ChildProcess, type SpawnOptions, spawn } from 'node:child_process';

/**
 * Like Node's `spawn`, but never throws: the child reports each failure by `error`, and then has no pid and no pipes.
 * Node reports a missing program this way, and throws for other failures (ETXTBSY while a program is replaced, EIO and
 * ESTALE on a shared file system, ENOMEM, E2BIG).
 */
export function spawnSafely(file: string, args: readonly string[], options: SpawnOptions): ChildProcess {
  try {
    return spawn(file, [...args], options);
  } catch (error) {
    const child: ChildProcess = new ChildProcess();
    process.nextTick(() => child.emit('error', error));
    return child;
  }
}
