/**
 * `npm test`: everything that can run on this machine, one thing after the other. `npm test -- e2e netns` runs those parts only.
 * Ends with one line, `N passed, N failed` and `, N skipped` where so; the exit code is 0 only if something ran and nothing failed.
 */
import { spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { z } from 'zod';
import { cannotRun } from './support/abilities.ts';
import { MARK, sweep } from './support/processes.ts';
import { ROOT } from './support/where.ts';

interface Tally {
  passed: number;
  failed: number;
  skipped: number;
}

/** Checks that are one command each, before any test. */
const CHECKS: Record<string, string[]> = {
  biome: ['biome', 'check', '.'],
  'tsc shared': ['tsc', '-p', 'tsconfig.shared.json'],
  'tsc worker': ['tsc', '-p', 'tsconfig.worker.json'],
  'tsc node': ['tsc', '-p', 'tsconfig.node.json'],
  'wrangler deploy --dry-run': ['wrangler', 'deploy', '--dry-run', '--outdir', 'dist/worker'],
};
const PROJECTS = ['shared', 'sim', 'gateway', 'agent', 'scheduler', 'e2e', 'slurm', 'netns'];
/** A part that takes longer than this hangs. */
const PART_LIMIT_MS = 30 * 60_000;

const reportSchema = z.object({
  numPassedTests: z.number(),
  numFailedTests: z.number(),
  numPendingTests: z.number(),
  numTodoTests: z.number(),
  testResults: z.array(z.object({ name: z.string(), status: z.string(), assertionResults: z.array(z.unknown()) })),
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
function readReport(path: string, status: number): Tally {
  try {
    const report = reportSchema.parse(JSON.parse(readFileSync(path, 'utf8')));
    const unloaded = report.testResults.filter(
      (file) => file.status === 'failed' && file.assertionResults.length === 0,
    ).length;
    const failed = report.numFailedTests + unloaded;
    return {
      passed: report.numPassedTests,
      failed: failed === 0 && status !== 0 ? 1 : failed,
      skipped: report.numPendingTests + report.numTodoTests,
    };
  } catch (error) {
    console.error(`no report: ${error instanceof Error ? error.message : String(error)}`);
    return { passed: 0, failed: 1, skipped: 0 };
  }
}

function project(name: string, directory: string, tally: Tally): void {
  console.log(`\n== ${name}`);
  const reason = cannotRun(name);
  if (reason !== undefined) {
    console.log(`skipped: ${reason}`);
    tally.skipped++;
    return;
  }
  const path = join(directory, `${name}.json`);
  const status = command([
    'vitest',
    'run',
    '--project',
    name,
    '--reporter=default',
    '--reporter=json',
    `--outputFile.json=${path}`,
  ]);
  const result = readReport(path, status);
  for (const left of sweep(run)) console.error(`left running by ${name}, ended now: ${left}`);
  if (result.passed + result.failed === 0) {
    console.error(`${name}: no test ran`);
    result.failed = 1;
  }
  tally.passed += result.passed;
  tally.failed += result.failed;
  tally.skipped += result.skipped;
}

function main(only: string[]): number {
  const unknown = only.find((name) => name !== 'checks' && !PROJECTS.includes(name));
  if (unknown !== undefined) {
    console.error(`no part is called ${unknown}; there are: checks ${PROJECTS.join(' ')}`);
    return 2;
  }
  const wanted = (name: string) => only.length === 0 || only.includes(name);
  const tally: Tally = { passed: 0, failed: 0, skipped: 0 };
  const directory = mkdtempSync(join(tmpdir(), 'otela-report-'));
  try {
    if (wanted('checks')) for (const [name, argv] of Object.entries(CHECKS)) check(name, argv, tally);
    for (const name of PROJECTS.filter(wanted)) project(name, directory, tally);
  } finally {
    rmSync(directory, { recursive: true, force: true });
    sweep(run);
  }
  console.log(
    `\n${tally.passed} passed, ${tally.failed} failed${tally.skipped > 0 ? `, ${tally.skipped} skipped` : ''}`,
  );
  return tally.failed === 0 && tally.passed > 0 ? 0 : 1;
}

process.exitCode = main(process.argv.slice(2));
