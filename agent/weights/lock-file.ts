/**
 * Mutual exclusion between processes. Agents of several jobs of one user share a directory of weights, on one machine
 * or several.
 */
import { randomUUID } from 'node:crypto';
import { link, readFile, rm, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { type LiveProcesses, parseHolder } from './live-processes.ts';
import { asWeightsError, WeightsError } from './weights-error.ts';

/** Interval at which a lock that another process holds is checked. */
const POLL_MS = 250;
/** If a lock is not free after this time, one line is logged. Most locks are held for moments. */
const REPORTED_AFTER_MS = 10_000;

export interface LockOptions {
  presence: LiveProcesses;
  log(line: string): void;
}

/**
 * Waits until the lock is free or its holder is gone. Returns a function that frees the lock. Undefined if `until`
 * returned true meanwhile: the lock is no longer needed.
 * @throws WeightsError `stopped`, `full`
 */
export async function takeLock(
  path: string,
  until: () => Promise<boolean>,
  signal: AbortSignal,
  { presence, log }: LockOptions,
): Promise<(() => Promise<void>) | undefined> {
  for (let waitedMs = 0; ; waitedMs += POLL_MS) {
    if (await until()) return undefined;
    const free = await tryLock(path, presence);
    if (free !== undefined) return free;
    const text = await textOf(path);
    if (text !== undefined && !(await presence.lives(text)) && (await breakLock(path, text, presence))) continue;
    if (waitedMs === REPORTED_AFTER_MS) log(waitingFor(path, text ?? ''));
    await delay(POLL_MS, undefined, { signal }).catch((cause: unknown) => {
      throw new WeightsError('stopped', 'the pull was cancelled', { cause });
    });
  }
}

function waitingFor(path: string, text: string): string {
  const holder = parseHolder(text);
  const who = holder === undefined ? 'another process' : `process ${holder.pid} of ${holder.host}`;
  const then = holder !== undefined && holder.elsewhere === undefined ? 'remove the file' : 'wait 3 minutes';
  return `weights: waiting for ${path}, which is locked by ${who}; if that process no longer exists, ${then}`;
}

/** The lock file must be complete as soon as it exists, because an empty file would count as a dead process's lock. */
async function tryLock(path: string, presence: LiveProcesses): Promise<(() => Promise<void>) | undefined> {
  const text = await presence.hold().catch((error: unknown) => {
    throw asWeightsError(error);
  });
  const written = `${path}.${randomUUID()}`;
  try {
    await writeFile(written, text, { flag: 'wx', mode: 0o600 });
    await link(written, path);
  } catch (error) {
    presence.release(text);
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return undefined;
    throw asWeightsError(error);
  } finally {
    await rm(written, { force: true });
  }
  return async () => {
    // Remove the lock only if it is still ours. If this machine slept for a long time, this process counted as gone,
    // and another process may have taken the lock.
    if ((await textOf(path)) === text) await rm(path, { force: true });
    presence.release(text);
  };
}

/**
 * Removes the lock of a dead process. A second lock ensures that only one process at a time does so, so that no process
 * removes a lock that was taken meanwhile. False if another process is doing it.
 */
async function breakLock(path: string, text: string, presence: LiveProcesses): Promise<boolean> {
  const breakPath = `${path}.break`;
  const free = await tryLock(breakPath, presence);
  if (free === undefined) {
    const other = await textOf(breakPath);
    if (other !== undefined && !(await presence.lives(other))) await rm(breakPath, { force: true });
    return false;
  }
  if ((await textOf(path)) === text) await rm(path, { force: true });
  await free();
  return true;
}

function textOf(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch(() => undefined);
}

/** True if the process that holds the lock lives, or if the file cannot be read. False if the file does not exist. */
export async function isHolderAlive(path: string, presence: LiveProcesses): Promise<boolean> {
  try {
    return await presence.lives(await readFile(path, 'utf8'));
  } catch (error) {
    return !(error instanceof Error && 'code' in error && error.code === 'ENOENT');
  }
}
