/** One process of this machine at a time: agents of several jobs of one user share a directory of weights. */
import { open, readFile, rm } from 'node:fs/promises';
import { hostname } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { WeightsError } from './error.ts';

/** How often a lock that another process holds is looked at. */
const LOOK_MS = 250;

/** Waits until the lock is free, or its holder dead. Returns how to free it; undefined where `until` says that it is needed no more. */
export async function takeLock(
  path: string,
  until: () => Promise<boolean>,
  signal: AbortSignal,
): Promise<(() => Promise<void>) | undefined> {
  for (;;) {
    if (await until()) return undefined;
    if (await tryLock(path)) return () => rm(path, { force: true });
    if (!(await holderLives(path))) await rm(path, { force: true });
    else
      await delay(LOOK_MS, undefined, { signal }).catch((cause: unknown) => {
        throw new WeightsError('stopped', 'the pull was given up', { cause });
      });
  }
}

async function tryLock(path: string): Promise<boolean> {
  try {
    const file = await open(path, 'wx', 0o600);
    await file.writeFile(`${process.pid} ${hostname()}\n`);
    await file.close();
    return true;
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return false;
    throw error;
  }
}

/** Another machine's is believed: the directory is on a shared file system then. */
export async function holderLives(path: string): Promise<boolean> {
  const text = await readFile(path, 'utf8').catch(() => '');
  const [, pid, host] = /^(\d+) (\S+)\n$/.exec(text) ?? [];
  // Just made and not written yet, or cut off by a full disk: alive for a while would be for ever.
  if (pid === undefined) return false;
  if (host !== hostname()) return true;
  // A lock of this very process is of a pull that has ended without freeing it, or of one that runs.
  try {
    process.kill(Number(pid), 0);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
