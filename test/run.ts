/**
 * `npm test`: everything that can run on this machine, one thing after the other. `npm test -- e2e netns` runs those parts only.
 * Ends with one line, `N passed, N failed` and `, N skipped` where so; the exit code is 0 only if something ran and nothing failed.
 * Files of tests that failed run a second time, alone: what passes then is named as flaky, and counts as passed. Skipped tests are named
 * where their part ends.
 */
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join, relative } from 'node:path';
import { z } from 'zod';
import { cannotRun } from './support/abilities.ts';
import { MARK, sweep } from './support/processes.ts';
import { ROOT } from './support/where.ts';

interface Tally {
  passed: number;
  failed: number;
  skipped: number;
}

interface Outcome extends Tally {
  /** Absolute paths of test files. */
  failedFiles: string[];
  /** `file > test` of what failed. */
  failures: string[];
}

/** Checks that are one command each, before any test. */
const CHECKS: Record<string, string[]> = {
  biome: ['biome', 'check', '.'],
  'tsc shared': ['tsc', '-p', 'tsconfig.shared.json'],
  'tsc worker': ['tsc', '-p', 'tsconfig.worker.json'],
  'tsc node': ['tsc', '-p', 'tsconfig.node.json'],
  'tsc dashboard': ['tsc', '-p', 'dashboard/tsconfig.json'],
  'wrangler deploy --dry-run': ['npm', 'run', '--silent', 'deploy:check'],
};
const PROJECTS = [
  'shared',
  'sim',
  'gateway',
  'agent',
  'scheduler',
  'e2e',
  'docs',
  'browser',
  'chaos',
  'slurm',
  'netns',
];
/** More files than these do not fail by chance, so nothing is run again. */
const SECOND_TRY_MAX = 6;
/** A part that takes longer than this hangs. */
const PART_LIMIT_MS = 30 * 60_000;

const reportSchema = z.object({
  numPassedTests: z.number(),
  numFailedTests: z.number(),
  numPendingTests: z.number(),
  numTodoTests: z.number(),
  testResults: z.array(
    z.object({
      name: z.string(),
      status: z.string(),
      assertionResults: z.array(z.object({ status: z.string(), fullName: z.string() })),
    }),
  ),
});

const run = `test-${randomBytes(6).toString('hex')}`;
const environment = {
  ...process.env,
  [MARK]: run,
  // npm may run under an older Node of the machine's: ours first.
  PATH: `${join(ROOT, 'node_modules/.bin')}${delimiter}${process.env.PATH ?? ''}`,
  CLOUDFLARE_CF_FETCH_ENABLED: 'false',
  WRANGLER_SEND_METRICS: 'false',
  WRANGLER_SEND_ERROR_REPORTS: 'false',
  WRANGLER_HIDE_BANNER: 'true',
};

function command(argv: string[]): number {
  const [file = '', ...args] = argv;
  const done = spawnSync(file, args, {
    cwd: ROOT,
    env: environment,
    stdio: 'inherit',
    timeout: PART_LIMIT_MS,
    killSignal: 'SIGKILL',
  });
  if (done.error) console.error(`${file}: ${done.error.message}`);
  return done.status ?? 1;
}

function check(name: string, argv: string[], tally: Tally): void {
  console.log(`\n== ${name}`);
  if (command(argv) === 0) tally.passed++;
  else tally.failed++;
}

/** What vitest's JSON report says; a file that failed to load, and a run that failed with no failed test, count as one failure each. */
function readReport(path: string, status: number): Outcome {
  try {
    const report = reportSchema.parse(JSON.parse(readFileSync(path, 'utf8')));
    const failedFiles = report.testResults.filter((file) => file.status === 'failed');
    const unloaded = failedFiles.filter((file) => file.assertionResults.length === 0).length;
    const failed = report.numFailedTests + unloaded;
    return {
      passed: report.numPassedTests,
      failed: failed === 0 && status !== 0 ? 1 : failed,
      skipped: report.numPendingTests + report.numTodoTests,
      failedFiles: failedFiles.map(({ name }) => name),
      failures: failedFiles.flatMap(({ name, assertionResults }) => {
        const tests = assertionResults.filter((one) => one.status === 'failed').map(({ fullName }) => fullName);
        return (tests.length > 0 ? tests : ['(the file itself)']).map((test) => `${relative(ROOT, name)} > ${test}`);
      }),
    };
  } catch (error) {
    console.error(`no report: ${error instanceof Error ? error.message : String(error)}`);
    return { passed: 0, failed: 1, skipped: 0, failedFiles: [], failures: [] };
  }
}

function vitest(name: string, path: string, files: readonly string[]): Outcome {
  const skipped = join(ROOT, 'test/support/skipped.ts');
  const reporters = ['--reporter=default', `--reporter=${skipped}`, '--reporter=json', `--outputFile.json=${path}`];
  const status = command(['vitest', 'run', '--project', name, ...reporters, ...files]);
  const outcome = readReport(path, status);
  for (const left of sweep(run)) console.error(`left running by ${name}, ended now: ${left}`);
  return outcome;
}

function project(name: string, directory: string, tally: Tally, flaky: string[]): void {
  console.log(`\n== ${name}`);
  const reason = cannotRun(name);
  if (reason !== undefined) {
    console.log(`skipped: ${reason}`);
    tally.skipped++;
    return;
  }
  const first = vitest(name, join(directory, `${name}.json`), []);
  if (first.passed + first.failed === 0) {
    console.error(`${name}: no test ran`);
    first.failed = 1;
  }
  const { failedFiles } = first;
  const again = first.failed > 0 && failedFiles.length > 0 && failedFiles.length <= SECOND_TRY_MAX;
  if (again) console.log(`\n== ${name}, a second time: ${failedFiles.map((file) => relative(ROOT, file)).join(' ')}`);
  const second = again ? vitest(name, join(directory, `${name}-again.json`), failedFiles) : undefined;
  const failed = second?.failed ?? first.failed;
  if (second !== undefined) flaky.push(...first.failures.filter((test) => !second.failures.includes(test)));
  // A test that passed at first and fails now is one that fails: the sum stays that of the tests that ran.
  tally.passed += first.passed + first.failed - failed;
  tally.failed += failed;
  tally.skipped += first.skipped;
}

function main(only: string[]): number {
  const unknown = only.find((name) => name !== 'checks' && !PROJECTS.includes(name));
  if (unknown !== undefined) {
    console.error(`no part is called ${unknown}; there are: checks ${PROJECTS.join(' ')}`);
    return 2;
  }
  const wanted = (name: string) => only.length === 0 || only.includes(name);
  const tally: Tally = { passed: 0, failed: 0, skipped: 0 };
  const flaky: string[] = [];
  const directory = mkdtempSync(join(tmpdir(), 'otela-report-'));
  try {
    if (wanted('checks')) for (const [name, argv] of Object.entries(CHECKS)) check(name, argv, tally);
    for (const name of PROJECTS.filter(wanted)) project(name, directory, tally, flaky);
  } finally {
    rmSync(directory, { recursive: true, force: true });
    sweep(run);
  }
  for (const test of flaky) console.log(`flaky, passed at the second try: ${test}`);
  console.log(
    `\n${tally.passed} passed, ${tally.failed} failed${tally.skipped > 0 ? `, ${tally.skipped} skipped` : ''}`,
  );
  return tally.failed === 0 && tally.passed > 0 ? 0 : 1;
}

process.exitCode = main(process.argv.slice(2));
