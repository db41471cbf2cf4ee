/** One process of this machine at a time: agents of several jobs of one user share a directory of weights. */
import { randomUUID } from 'node:crypto';
import { link, readFile, rm, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { WeightsError } from './error.ts';

/** How often a lock that another process holds is looked at. */
const LOOK_MS = 250;

/** What this process has written into the locks that it holds. Its number alone says little: in a container each process has the same. */
const own = new Set<string>();

/** Waits until the lock is free, or its holder dead. Returns how to free it; undefined where `until` says that it is needed no more. */
export async function takeLock(
  path: string,
  until: () => Promise<boolean>,
  signal: AbortSignal,
): Promise<(() => Promise<void>) | undefined> {
  for (;;) {
    if (await until()) return undefined;
    const free = await tryLock(path);
    if (free !== undefined) return free;
    const text = await textOf(path);
    if (text !== undefined && !lives(text) && (await breakLock(path, text))) continue;
    await delay(LOOK_MS, undefined, { signal }).catch((cause: unknown) => {
      throw new WeightsError('stopped', 'the pull was given up', { cause });
    });
  }
}

/** It is whole as soon as it is there: an empty one would be taken for a dead process's. */
async function tryLock(path: string): Promise<(() => Promise<void>) | undefined> {
  const text = `${process.pid} ${hostname()} ${randomUUID()}\n`;
  const written = `${path}.${randomUUID()}`;
  own.add(text);
  try {
    await writeFile(written, text, { flag: 'wx', mode: 0o600 });
    await link(written, path);
  } catch (error) {
    own.delete(text);
    if (error instanceof Error && 'code' in error && error.code === 'EEXIST') return undefined;
    throw error;
  } finally {
    await rm(written, { force: true });
  }
  return async () => {
    await rm(path, { force: true });
    own.delete(text);
  };
}

/** Takes a dead process's lock away, and no other: of those that see it one does at a time. False: another is at it. */
async function breakLock(path: string, text: string): Promise<boolean> {
  const turn = `${path}.break`;
  const free = await tryLock(turn);
  if (free === undefined) {
    const other = await textOf(turn);
    if (other !== undefined && !lives(other)) await rm(turn, { force: true });
    return false;
  }
  if ((await textOf(path)) === text) await rm(path, { force: true });
  await free();
  return true;
}

function textOf(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch(() => undefined);
}

export async function holderLives(path: string): Promise<boolean> {
  return lives((await textOf(path)) ?? '');
}

/** Another machine's is believed: the directory is on a shared file system then. */
function lives(text: string): boolean {
  const [, pid, host, name] = /^(\d+) (\S+)(?: (\S+))?\n$/.exec(text) ?? [];
  // Cut off by a full disk: alive for a while would be for ever.
  if (pid === undefined) return false;
  if (host !== hostname()) return true;
  if (name !== undefined && Number(pid) === process.pid) return own.has(text);
  try {
    process.kill(Number(pid), 0);
    return true;
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
