/** A run of all tests is divided so that its pieces end at about the same time. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { jobsOf, pieces } from '../support/jobs.ts';
import { filesToTryAgain, type Outcome } from '../support/vitest-run.ts';
import { ROOT } from '../support/where.ts';

it('files go, the longest first, to the piece that has the least so far; none is lost and none runs twice', () => {
  const seconds: Record<string, number> = { a: 100, b: 60, c: 50, d: 30, e: 10 };
  expect(pieces(Object.keys(seconds), (file) => seconds[file] ?? 0, 130)).toEqual([
    ['a', 'd'],
    ['b', 'c', 'e'],
  ]);
  expect(pieces([], () => 1, 10)).toEqual([]);
});

it('each test file of a part is in one run, and the longest run begins first', () => {
  const jobs = jobsOf(['e2e', 'netns', 'worker']);
  const files = jobs.filter(({ part }) => part === 'e2e').flatMap((job) => job.files);
  expect(new Set(files).size).toBe(files.length);
  expect(files).toContain('test/e2e/standalone/serve.test.ts');
  expect(jobs.filter(({ part }) => part === 'netns')).toHaveLength(1);
  expect(jobs.map((job) => job.seconds)).toEqual(jobs.map((job) => job.seconds).toSorted((a, b) => b - a));
  expect(jobs.filter(({ part }) => part === 'worker').every((job) => job.project === 'conformance')).toBe(true);
  for (const file of jobs.flatMap((job) => job.files)) expect(existsSync(join(ROOT, file)), file).toBe(true);
});

it('no second try of failed files makes a run good in which another one broke', () => {
  const outcome = (failed: number, failedFiles: string[]): Outcome => ({
    passed: 3,
    failed,
    skipped: 0,
    failedFiles,
    failures: failedFiles,
    times: [],
    wallSeconds: 1,
    cpuSeconds: 1,
  });
  const [good, failed, broken] = [outcome(0, []), outcome(2, ['/a.test.ts']), outcome(1, [])];
  expect(filesToTryAgain([good, failed], 6)).toEqual(['/a.test.ts']);
  expect(filesToTryAgain([good, failed, broken], 6)).toEqual([]);
  expect(filesToTryAgain([failed, failed], 1)).toEqual([]);
});
