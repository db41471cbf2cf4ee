import { writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { takeLock } from '../../../agent/weights/lock-file.ts';
import { endAll, temporaryDirectory } from '../../support/processes.ts';

afterEach(endAll);

const lockPath = async () => join(await temporaryDirectory('otela-lock'), 'a.lock');
const { signal } = new AbortController();
const never = async () => false;

/** So many take it, one after the other; resolves with the most that had it at one time. */
async function contend(path: string, count: number): Promise<number> {
  let [holders, most] = [0, 0];
  const one = async () => {
    const free = await takeLock(path, never, signal);
    most = Math.max(most, ++holders);
    await delay(2);
    holders--;
    await free?.();
  };
  await Promise.all(Array.from({ length: count }, one));
  return most;
}

it('has one holder, also in the moment in which it is made', async () => {
  for (let round = 0; round < 5; round++) expect(await contend(await lockPath(), 8)).toBe(1);
});

it('of a dead holder goes to one of those that wait', async () => {
  for (let round = 0; round < 5; round++) {
    const path = await lockPath();
    await writeFile(path, `4194400 ${hostname()}\n`);
    expect(await contend(path, 8)).toBe(1);
  }
});

it('of an earlier process with this one’s number, as in a container that is started again, is nobody’s', async () => {
  const path = await lockPath();
  await writeFile(path, `${process.pid} ${hostname()} of-its-own\n`);
  expect(await takeLock(path, never, AbortSignal.timeout(2_000))).toBeDefined();
});
