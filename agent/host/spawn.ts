/** Starts programs so that every failure comes the same way. */
import { ChildProcess, type SpawnOptions, spawn } from 'node:child_process';

/**
 * As Node's `spawn`, but never throws: the child tells each failure by `error`, and has no pid and no pipes then. Node tells a missing
 * program so, and throws for the rest (ETXTBSY while a program is replaced, EIO and ESTALE on a shared file system, ENOMEM, E2BIG).
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
