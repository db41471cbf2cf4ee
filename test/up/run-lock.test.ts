/** The lock of a run, and of the start of the gateway. */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { endLockHolder, isLocked, takeRunLock } from '../../up/state/run-lock.ts';
import { endAll, temporaryDirectory } from '../support/processes.ts';

afterEach(endAll);

it('of many that take a lock at the same time one has it, and the next one after it is released', async () => {
  const path = join(await temporaryDirectory('otela-lock'), 'a.sock');
  // A process that was killed left its file.
  await writeFile(path, '');
  const taken = await Promise.all(Array.from({ length: 20 }, () => takeRunLock(path, () => {})));
  const [lock, ...others] = taken.filter((one) => one !== undefined);
  expect(others).toEqual([]);
  expect(await isLocked(path)).toBe(true);
  lock?.release();
  expect(await isLocked(path)).toBe(false);
  const next = await takeRunLock(path, () => {});
  expect(next).toBeDefined();
  next?.release();
});

it('the holder is asked to end, and others are not', async () => {
  const path = join(await temporaryDirectory('otela-lock'), 'a.sock');
  expect(await endLockHolder(path)).toBe(false);
  const asked: string[] = [];
  const lock = await takeRunLock(path, () => {
    asked.push('end');
    lock?.release();
  });
  expect(await endLockHolder(path)).toBe(true);
  expect(asked).toEqual(['end']);
});
