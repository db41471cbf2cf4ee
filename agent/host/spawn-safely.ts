/** Starts programs and reports every failure in the same way. */
import { ChildProcess, type SpawnOptions, spawn } from 'node:child_process';

/**
 * Like Node's `spawn`, but never throws: each failure is reported by the child's `error` event, and the child then has
 * no pid and no pipes. Node does this only for a missing program, and throws for other failures (ETXTBSY while a
 * program is replaced, EIO and ESTALE on a shared file system, ENOMEM, E2BIG).
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
