/** A function left files in its directory that cannot be removed; the agent continues. */
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { removeStaleDirectories } from '../../../agent/batch/functions/function-directory.ts';
import { FunctionProcess } from '../../../agent/batch/functions/function-process.ts';
import { scratch } from '../support/harness.ts';

/** root may remove anything, so the test itself plays the file system's refusal. */
const disk = vi.hoisted(() => ({ refuses: false }));
vi.mock('node:fs', async (original) => {
  const real = await original<typeof import('node:fs')>();
  const rmSync: typeof real.rmSync = (path, options) => {
    if (disk.refuses) throw Object.assign(new Error(`EACCES: ${String(path)}`), { code: 'EACCES' });
    real.rmSync(path, options);
  };
  return { ...real, rmSync };
});

it('the process ends all the same, and what stays is logged', async () => {
  const lines: string[] = [];
  const process = new FunctionProcess({
    limits: { python: 'no-such-python', loadMs: 60_000, callMs: 60_000, memoryBytes: 2 ** 30 },
    env: {},
    temporary: scratch(),
    code: '',
    name: undefined,
    log: (line) => lines.push(line),
  });
  disk.refuses = true;
  onTestFinished(() => {
    disk.refuses = false;
  });
  expect(await process.load()).toContain('it could not be started');
  await expect(process.stop()).resolves.toBeUndefined();
  expect(lines).toEqual([expect.stringContaining('the directory of a function could not be deleted: EACCES')]);
});

it('an agent starts where such a directory was left', () => {
  disk.refuses = true;
  onTestFinished(() => {
    disk.refuses = false;
  });
  const temporary = scratch();
  // Above the highest process number that Linux assigns.
  const left = join(temporary, 'otela-function-999999999-x');
  mkdirSync(left);
  expect(() => removeStaleDirectories(temporary)).not.toThrow();
  expect(existsSync(left)).toBe(true);
  disk.refuses = false;
  removeStaleDirectories(temporary);
  expect(existsSync(left)).toBe(false);
});
