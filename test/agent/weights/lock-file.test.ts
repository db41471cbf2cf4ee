import { watch } from 'node:fs';
import { mkdir, readdir, readFile, rename, rm, stat, symlink, utimes, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { LiveProcesses } from '../../../agent/weights/live-processes.ts';
import { type LockOptions, takeLock } from '../../../agent/weights/lock-file.ts';
import { StoredManifests } from '../../../agent/weights/stored-manifests.ts';
import { atEnd, endAll, eventually, temporaryDirectory } from '../../support/processes.ts';

afterEach(endAll);

const { signal } = new AbortController();
const never = async () => false;

/** A directory, a lock in it, and one process that shares it. */
async function shared() {
  const directory = await temporaryDirectory('otela-lock');
  const alive = join(directory, 'alive');
  const path = join(directory, 'a.lock');
  const logged: string[] = [];
  const locking: LockOptions = { presence: new LiveProcesses(alive), log: (line) => logged.push(line) };
  atEnd(() => locking.presence.close());
  const take = (within: AbortSignal = signal) => takeLock(path, never, within, locking);
  return { directory, alive, path, logged, locking, take };
}

/** `count` holders take it, one after the other; resolves with the maximum number of concurrent holders. */
async function contend(take: () => Promise<(() => Promise<void>) | undefined>, count: number): Promise<number> {
  let [holders, most] = [0, 0];
  const one = async () => {
    const free = await take();
    most = Math.max(most, ++holders);
    await delay(2);
    holders--;
    await free?.();
  };
  await Promise.all(Array.from({ length: count }, one));
  return most;
}

/**
 * A lock that was taken and never freed, as another process wrote it: of another machine, or of this one with another
 * number or start.
 */
async function left({ path, take }: Awaited<ReturnType<typeof shared>>, as: Partial<Record<Field, string>>) {
  await take();
  const [pid = '', host = '', name = '', machine = '', start = '', beats = ''] = (await readFile(path, 'utf8')).split(
    /[ \n]/,
  );
  const all = { pid, host, name, machine, start, beats, ...as };
  await writeFile(path, `${all.pid} ${all.host} ${all.name} ${all.machine} ${all.start} ${all.beats}\n`);
}
type Field = 'pid' | 'host' | 'name' | 'machine' | 'start' | 'beats';

const ELSEWHERE = { host: 'pod-a', machine: '0123456789abcdef' };
const FREE_WITHIN_MS = 20_000;
/** True if the lock can be taken within `withinMs`. */
const isTaken = (take: (within: AbortSignal) => Promise<unknown>, withinMs = 700) =>
  take(AbortSignal.timeout(withinMs)).then(
    () => true,
    () => false,
  );

it('has one holder, also in the moment in which it is made', async () => {
  for (let round = 0; round < 2; round++) expect(await contend((await shared()).take, 8)).toBe(1);
});

it('of a dead holder goes to one of those that wait', async () => {
  for (let round = 0; round < 2; round++) {
    const { path, take } = await shared();
    await writeFile(path, `4194400 ${hostname()}\n`);
    expect(await contend(take, 8)).toBe(1);
  }
});

it('of an earlier process with this one’s number, as in a container that is started again, is free', async () => {
  const { path, take } = await shared();
  await writeFile(path, `${process.pid} ${hostname()} of-its-own\n`);
  expect(await isTaken(take, FREE_WITHIN_MS)).toBe(true);
});

it('of a process whose number another one has now is free', async () => {
  const cluster = await shared();
  await left(cluster, { pid: String(process.ppid), start: '1' });
  expect(await isTaken(cluster.take, FREE_WITHIN_MS)).toBe(true);
});

it('of a process of another machine or container is kept while that process renews it, whatever has its number here', async () => {
  for (const as of [ELSEWHERE, { ...ELSEWHERE, host: hostname(), pid: '4194400' }]) {
    const cluster = await shared();
    await left(cluster, as);
    expect(await isTaken(cluster.take)).toBe(false);
  }
});

describe('of a pod that vanished', () => {
  async function vanished() {
    vi.useFakeTimers({ toFake: ['performance'] });
    atEnd(() => void vi.useRealTimers());
    const cluster = await shared();
    await left(cluster, ELSEWHERE);
    const [beats = ''] = await readdir(cluster.alive);
    const beatAt = (s: number) => utimes(join(cluster.alive, beats), new Date(), new Date(Date.now() + s * 1_000));
    return { ...cluster, beatAt };
  }

  it('goes to one of those that wait, once three minutes have passed by the file system’s clock', async () => {
    const cluster = await vanished();
    await cluster.beatAt(-120);
    expect(await isTaken(cluster.take)).toBe(false);
    vi.advanceTimersByTime(80_000);
    expect(await isTaken(cluster.take)).toBe(false);
    await cluster.beatAt(-200);
    expect(await isTaken(cluster.take)).toBe(false);
    vi.advanceTimersByTime(80_000);
    expect(await contend(cluster.take, 8)).toBe(1);
  });

  it('is kept where that clock jumped ahead and the pod beats, and goes where it was set back and the pod does not', async () => {
    const cluster = await vanished();
    await cluster.beatAt(-3_600);
    expect(await isTaken(cluster.take)).toBe(false);
    vi.advanceTimersByTime(20_000);
    await cluster.beatAt(3_600);
    expect(await isTaken(cluster.take)).toBe(false);
    vi.advanceTimersByTime(181_000);
    expect(await isTaken(cluster.take, FREE_WITHIN_MS)).toBe(true);
  });
});

it('of a process whose beat was swept or put back is kept: it beats by name, not into a file that has none', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  atEnd(() => void vi.useRealTimers());
  const cluster = await shared();
  await left(cluster, ELSEWHERE);
  const [beats = ''] = await readdir(cluster.alive);
  const path = join(cluster.alive, beats);
  for (const replace of [() => rm(path), () => writeFile(`${path}.old`, '').then(() => rename(`${path}.old`, path))]) {
    await replace();
    const old = await utimes(path, new Date(), new Date(0)).then(
      () => 0,
      () => undefined,
    );
    vi.advanceTimersByTime(15_000);
    await eventually('it has beaten', 5_000, async () => {
      const mtime = (await stat(path).catch(() => undefined))?.mtimeMs;
      return (mtime !== undefined && mtime !== old) || undefined;
    });
    expect(await isTaken(cluster.take)).toBe(false);
  }
});

it('of a process that said that it ends is free', async () => {
  const cluster = await shared();
  await left(cluster, { ...ELSEWHERE, beats: '00000000-0000-0000-0000-000000000000' });
  expect(await isTaken(cluster.take, FREE_WITHIN_MS)).toBe(true);
});

it('that was taken away from a machine that slept is not removed by it', async () => {
  const { path, take } = await shared();
  const free = await take();
  await writeFile(path, 'another’s\n');
  await free?.();
  expect(await readFile(path, 'utf8')).toBe('another’s\n');
});

it('of a pinned model is that of its process: another pod with the same number neither keeps nor ends it', async () => {
  const { directory, locking } = await shared();
  const [a, b] = [new StoredManifests(directory, locking.presence), new StoredManifests(directory, locking.presence)];
  await a.open();
  await a.pin('m');
  await b.pin('m');
  await b.unpin('m');
  expect(await readdir(join(directory, 'pins', 'm'))).toHaveLength(1);
});

it('of a pinned model that cannot be read at the moment keeps the model', async () => {
  const { directory, locking } = await shared();
  const manifests = new StoredManifests(directory, locking.presence);
  await manifests.open();
  const files = [{ path: 'a', size: 1, key: 'a'.repeat(64), exact: true }];
  await manifests.save('m', { v: 1, source: 'dir:/m', revision: '1', public: false, files }, 1);
  await manifests.pin('m');
  await manifests.unpin('m');
  // Reading a link that leads to itself fails, like reading from a server that is unreachable.
  await symlink('other', join(directory, 'pins', 'm', 'other'));
  expect(await manifests.get('m')).toMatchObject({ pinned: true });
  expect(await readdir(join(directory, 'pins', 'm'))).toEqual(['other']);
});

it('of a pinned model is whole as soon as it is there: an empty one would be taken for a gone process’s', async ({
  skip,
}) => {
  if (process.platform !== 'linux') return skip('what happens to a file is watched by inotify');
  const { directory, locking } = await shared();
  const manifests = new StoredManifests(directory, locking.presence);
  const folder = join(directory, 'pins', 'm');
  await mkdir(folder, { recursive: true });
  const seen: string[] = [];
  const watcher = watch(folder);
  atEnd(() => watcher.close());
  const last = new Promise<void>((resolve) => {
    watcher.on('change', (event, name) => (name === 'last' ? resolve() : seen.push(event)));
  });
  await manifests.pin('m');
  await writeFile(join(folder, 'last'), '');
  await last;
  expect(seen).toEqual(['rename']);
});
