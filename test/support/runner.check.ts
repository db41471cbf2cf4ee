/**
 * Tests of the runner itself, which prove nothing about the product: `node --test test/support/runner.check.ts`, one of
 * the checks.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { PROMISES } from '../promises.ts';
import { isShort, LONG, NOT_IN_CI, PARTS, SHORT, SHORT_POSTGRES, SHORT_WORKER } from '../tiers.ts';
import { filesOf, jobsOf, pieces } from './jobs.ts';
import { Reach } from './reach.ts';
import { TestTally, together } from './tally.ts';
import { TimeLeft } from './time-left.ts';
import { filesToTryAgain } from './vitest-run.ts';
import { ROOT } from './where.ts';

await test('files go, the longest first, to the piece that has the least so far; none is lost and none runs twice', () => {
  const seconds: Record<string, number> = { a: 100, b: 60, c: 50, d: 30, e: 10 };
  assert.deepEqual(
    pieces(Object.keys(seconds), (file) => seconds[file] ?? 0, 130),
    [
      ['a', 'd'],
      ['b', 'c', 'e'],
    ],
  );
  assert.deepEqual(
    pieces([], () => 1, 10),
    [],
  );
});

await test('every test file is in one job, and every file of the lists is there and on the right one', () => {
  const jobs = jobsOf(new Map(PARTS.map((part) => [part, filesOf(part)])));
  const own = jobs.filter(({ part }) => part !== 'worker' && part !== 'postgresql').flatMap(({ files }) => files);
  assert.equal(new Set(own).size, own.length);
  for (const file of [LONG, SHORT, NOT_IN_CI].flatMap(Object.keys))
    assert(own.includes(file), `${file} is listed and not there`);
  for (const file of SHORT_WORKER) assert(filesOf('worker').includes(`test/conformance/${file}.test.ts`), file);
  for (const file of SHORT_POSTGRES) assert(filesOf('postgresql').includes(`test/conformance/${file}.test.ts`), file);
  for (const file of own) assert(existsSync(join(ROOT, file)), file);
  for (const file of Object.keys(LONG))
    assert(!isShort(file.split('/')[1] ?? '', file), `${file} is in LONG and short`);
  for (const file of Object.keys(SHORT))
    assert(isShort(file.split('/')[1] ?? '', file), `${file} is in SHORT and long`);
});

await test('the line that keeps each promise stands once in its file, and its test is in the short form', () => {
  for (const { promise, file, breaks } of PROMISES) {
    assert.equal(readFileSync(join(ROOT, breaks.file), 'utf8').split(breaks.line).length, 2, promise);
    assert(isShort(file.split('/', 1).join(), `test/${file}.test.ts`), file);
  }
});

await test('no second try makes a run good that broke beside its files', () => {
  const [one, other, broken] = [
    { file: 'a.test.ts', message: '' },
    { file: 'b.test.ts', message: '' },
    { message: 'vitest ended' },
  ];
  assert.deepEqual(filesToTryAgain([one, one], 1), ['a.test.ts']);
  assert.deepEqual(filesToTryAgain([one, broken], 6), []);
  assert.deepEqual(filesToTryAgain([one, other], 1), []);
});

await test('what passes at the second try is flaky and counts as passed; what fails again is a failure once', () => {
  const outcome = (passed: number, failed: string[]) => ({
    ...together([]),
    passed,
    failures: failed.map((name) => ({ file: 'a.test.ts', test: name, message: 'expected 1 to be 2' })),
  });
  const tally = new TestTally();
  tally.add('shared', outcome(3, ['now and then', 'always']), outcome(4, ['always']));
  assert.deepEqual([tally.passed, tally.failures.length], [4, 1]);
  assert.deepEqual(tally.flaky, [{ test: 'a.test.ts > now and then', message: 'expected 1 to be 2' }]);
});

await test('files that would not end in time are listed and count as skipped', () => {
  const tally = new TestTally();
  tally.leaveOut(['a.test.ts', 'b.test.ts']);
  assert.equal(tally.skipped, 2);
  assert.match(tally.told(), /^skipped, .*: b\.test\.ts$/m);
});

await test('a run with a time limit keeps all short files, and the long ones that will end in time', () => {
  const [short = ''] = Object.keys(SHORT);
  const seconds: Record<string, number> = { [short]: 100, long: 50, longer: 200, other: 40 };
  const secondsOf = (file: string) => seconds[file] ?? 0;
  const job = { part: 'e2e', title: '', project: '', env: {}, seconds: 390, files: Object.keys(seconds), secondsOf };
  // Stretched twice: 780 s.
  const filesAt = (nowS: number, { endS = 1_000, lanes = 1, waiting = 0, ended = 0, running = 0 } = {}) => {
    const timeLeft = new TimeLeft(endS, lanes, 1);
    const before = { ...job, files: [short] };
    if (ended > 0) timeLeft.ended(before, timeLeft.begin(before, 0, []), ended);
    for (let n = 0; n < running; n++) timeLeft.begin(before, 0, []);
    return timeLeft.begin(job, nowS, Array(waiting).fill(before));
  };
  assert.deepEqual(filesAt(1e9, { endS: Number.POSITIVE_INFINITY }), job.files);
  assert.deepEqual(filesAt(220), job.files);
  assert.deepEqual(filesAt(230), [short, 'long', 'longer']);
  assert.deepEqual(filesAt(2_000), [short]);
  assert.deepEqual(filesAt(220, { ended: 400 }), [short, 'long', 'other'], 'the run takes four times as long');
  assert.deepEqual(filesAt(300, { ended: 400 }), [short, 'long']);
  assert.deepEqual(filesAt(220, { waiting: 2 }), [short, 'long', 'other'], 'short files wait');
  assert.deepEqual(filesAt(220, { lanes: 2, waiting: 2 }), job.files);
  assert.deepEqual(filesAt(220, { running: 4 }), [short, 'long', 'other'], 'other jobs are half done');
});

await test('a change reaches the tests that import it, start its program or read its page, and no others', () => {
  const reach = new Reach(ROOT);
  const has = (changed: string, file: string) => reach.tests([changed])?.has(file);
  assert(has('shared/openai/sse-splitter.ts', 'test/shared/openai/sse-splitter.test.ts'));
  assert(has('shared/openai/sse-splitter.ts', 'test/e2e/failure.test.ts'), 'through the program of the gateway');
  assert(has('agent/cli/main.ts', 'test/slurm/jobs.test.ts'));
  assert(has('gateway/index.ts', 'test/gateway/admin/roles.test.ts'), 'through wrangler.toml');
  assert(!has('scheduler/planner/planner.ts', 'test/e2e/failure.test.ts'));
  assert(has('docs/architecture.md', 'test/docs/links.test.ts'));
  assert(!has('docs/architecture.md', 'test/e2e/failure.test.ts'));
  for (const all of ['package-lock.json', 'test/support/reporter.ts', 'build.ts', 'an/unknown.bin'])
    assert.equal(reach.tests([all]), undefined, all);
});
