/**
 * `npm test`: everything that can run on this machine. `npm test -- e2e netns` runs those parts only.
 * Five runs of vitest go side by side on two cores, since tests mostly wait, the longest first; what each says is printed when it is over.
 * Ends with one line, `N passed, N failed` and `, N skipped` where so; the exit code is 0 only if something ran and nothing failed.
 * Files of tests that failed run a second time, alone: what passes then is named as flaky, counts as passed, and is written into test/flaky.json.
 * `npm test -- --changed`: only the tests of rooms that differ from main. Skipped tests are named
 * where their part ends.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { delimiter, join, relative } from 'node:path';
import { cannotRun } from './support/abilities.ts';
import { testsOf } from './support/changed.ts';
import { addToLedger } from './support/flaky-ledger.ts';
import { environmentOf, type Job, jobsOf } from './support/jobs.ts';
import { command, type FileTime, filesToTryAgain, type Outcome, vitestRun } from './support/vitest-run.ts';
import { BUILT_VARIABLE, COMPILE_CACHE, ROOT } from './support/where.ts';

/** Checks that are one command each, before any test. */
const CHECKS: Record<string, string[]> = {
  biome: ['biome', 'check', '.'],
  'lock file': ['node', 'packaging/install/lock.ts', '--check'],
  'tsc shared': ['tsc', '-p', 'tsconfig.shared.json'],
  'tsc worker': ['tsc', '-p', 'tsconfig.worker.json'],
  'tsc node': ['tsc', '-p', 'tsconfig.node.json'],
  'tsc dashboard': ['tsc', '-p', 'dashboard/tsconfig.json'],
};
/** Bundles the page, which is built before. */
const DEPLOY_CHECK: Record<string, string[]> = {
  'wrangler deploy --dry-run': ['npm', 'run', '--silent', 'deploy:check'],
};
const PARTS = [
  'e2e',
  'conformance',
  'worker',
  'agent',
  'gateway',
  'netns',
  'slurm',
  'browser',
  'docs',
  'sim',
  'shared',
  'scheduler',
  'factory',
  'chaos',
];
/** Loads the machine as far as it goes and allows no error: runs when all others are over. */
const ALONE: ReadonlySet<string> = new Set(['chaos']);
/** Tests wait for two thirds of their time, so these many runs of vitest keep the cores busy. */
const LANES = Math.min(2 * availableParallelism() + 1, 12);
/** They compute, or have a browser do so: one at a time beside those that wait, since bounds of time would break. */
const COMPUTING: ReadonlySet<string> = new Set(['browser', 'docs', 'sim', 'shared', 'scheduler', 'factory']);
/** Files that are named with their time at the end. */
const SLOWEST = 20;
/** More files than these do not fail by chance, so nothing is run again. */
const SECOND_TRY_MAX = 6;

const run = `test-${randomBytes(6).toString('hex')}`;
const env: NodeJS.ProcessEnv = {
  ...process.env,
  // npm may run under an older Node of the machine's: ours first.
  PATH: `${join(ROOT, 'node_modules/.bin')}${delimiter}${process.env.PATH ?? ''}`,
  // Of vitest itself and of its workers, too.
  NODE_COMPILE_CACHE: COMPILE_CACHE,
  CLOUDFLARE_CF_FETCH_ENABLED: 'false',
  WRANGLER_SEND_METRICS: 'false',
  WRANGLER_SEND_ERROR_REPORTS: 'false',
  WRANGLER_HIDE_BANNER: 'true',
};

interface Ended {
  job: Job;
  outcome: Outcome;
}

/**
 * Runs `jobs` in their order, `lanes` at once; gives each one's outcome. One of them computes all the while that others wait, and one for each core
 * when those are over. `quiet`: others speak too, so each is heard when it is over.
 */
async function runAll(
  jobs: readonly Job[],
  lanes: number,
  { directory, quiet }: { directory: string; quiet: boolean },
): Promise<Ended[]> {
  const ended: Ended[] = [];
  const left = [...jobs];
  let computing = 0;
  let waiting = jobs.filter(({ part }) => !COMPUTING.has(part)).length;
  const next = (): Job | undefined => {
    const most = waiting > 0 ? 1 : availableParallelism();
    const computes = computing < most ? left.findIndex(({ part }) => COMPUTING.has(part)) : -1;
    const index = computes < 0 ? left.findIndex(({ part }) => !COMPUTING.has(part)) : computes;
    return index < 0 ? undefined : left.splice(index, 1)[0];
  };
  // A lane ends where only computing is left and enough do it: those go on.
  const lane = async () => {
    for (let job = next(); job !== undefined; job = next()) {
      const { part, project, title, files } = job;
      const isComputing = COMPUTING.has(part);
      if (isComputing) computing++;
      console.log(quiet ? `-- ${title} begins` : `\n== ${title}`);
      const options = { id: `${run}-${title.replaceAll(/\W+/g, '-')}`, directory, env: { ...env, ...job.env } };
      ended.push({ job, outcome: await vitestRun(project, files, { ...options, ...(quiet ? { title } : {}) }) });
      if (isComputing) computing--;
      else waiting--;
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return ended;
}

const seconds = (value: number) => `${value.toFixed(0).padStart(5)} s`;

class Tally {
  passed = 0;
  failed = 0;
  skipped = 0;
  /** `file > test` of what passed at the second try only. */
  readonly flaky: string[] = [];
  /** What failed at the last: `file > test`, or the name of a check. */
  readonly failures: string[] = [];
  /** Of every file, where it ran first. */
  readonly times: FileTime[] = [];
  readonly #parts: string[] = [];

  /** All of one part, and what its second try gave, if there was one. */
  add(part: string, first: Outcome, second: Outcome | undefined): void {
    this.#parts.push(`${part.padEnd(12)} ${seconds(first.wallSeconds)} ${seconds(first.cpuSeconds)}`);
    const failed = second?.failed ?? first.failed;
    if (second !== undefined) this.flaky.push(...first.failures.filter((test) => !second.failures.includes(test)));
    // A test that passed at first and fails now is one that fails: the sum stays that of the tests that ran.
    this.passed += first.passed + first.failed - failed;
    this.failed += failed;
    this.failures.push(...namesOf(part, second ?? first));
    this.skipped += first.skipped;
    this.times.push(...first.times);
  }

  /** What of each part is work and what is waiting: the sum over its runs, which went side by side with others. */
  parts(): string {
    return [`${''.padEnd(12)}   wall    CPU`, ...this.#parts].map((line) => `  ${line}`).join('\n');
  }

  /** Where a run's time goes: what to look at when it becomes too long. */
  slowest(count: number): string {
    const slow = this.times.toSorted((a, b) => b.seconds - a.seconds).slice(0, count);
    return slow.map(({ file, seconds }) => `  ${seconds.toFixed(0).padStart(4)} s  ${file}`).join('\n');
  }
}

/** A run may fail without a failed test, as when something is thrown outside of all of them. */
function namesOf(part: string, { failed, failures }: Outcome): readonly string[] {
  return failed > failures.length ? [...failures, `${part} > (the run itself)`] : failures;
}

function sum(outcomes: readonly Outcome[]): Outcome {
  const total = (of: (outcome: Outcome) => number) => outcomes.reduce((all, outcome) => all + of(outcome), 0);
  return {
    passed: total(({ passed }) => passed),
    failed: total(({ failed }) => failed),
    skipped: total(({ skipped }) => skipped),
    failedFiles: outcomes.flatMap(({ failedFiles }) => failedFiles),
    failures: outcomes.flatMap(({ failures }) => failures),
    times: outcomes.flatMap(({ times }) => times),
    wallSeconds: total(({ wallSeconds }) => wallSeconds),
    cpuSeconds: total(({ cpuSeconds }) => cpuSeconds),
  };
}

async function runParts(parts: readonly string[], directory: string, tally: Tally): Promise<void> {
  const able = parts.filter((name) => {
    const reason = cannotRun(name);
    if (reason === undefined) return true;
    console.log(`\n== ${name}\nskipped: ${reason}`);
    tally.skipped++;
    return false;
  });
  const together = jobsOf(able.filter((name) => !ALONE.has(name)));
  const alone = jobsOf(able.filter((name) => ALONE.has(name)));
  const ended = [
    ...(await runAll(together, LANES, { directory, quiet: together.length > 1 })),
    ...(await runAll(alone, 1, { directory, quiet: false })),
  ];
  for (const name of able) {
    const outcomes = ended.filter(({ job }) => job.part === name).map(({ outcome }) => outcome);
    const first = sum(outcomes);
    if (first.passed + first.failed === 0) {
      console.error(`${name}: no test ran`);
      first.failed = 1;
    }
    tally.add(name, first, await secondTry(name, outcomes, directory));
  }
}

async function secondTry(part: string, outcomes: readonly Outcome[], directory: string): Promise<Outcome | undefined> {
  const files = filesToTryAgain(outcomes, SECOND_TRY_MAX);
  if (files.length === 0) return undefined;
  console.log(`\n== ${part}, a second time: ${files.map((file) => relative(ROOT, file)).join(' ')}`);
  const { project, env: more } = environmentOf(part);
  return vitestRun(project, files, { id: `${run}-${part}-again`, directory, env: { ...env, ...more } });
}

/** Each is one thread for most of its life. */
async function runChecks(checks: Record<string, string[]>, directory: string, tally: Tally): Promise<void> {
  const left = Object.entries(checks);
  const lane = async () => {
    for (let check = left.shift(); check !== undefined; check = left.shift()) {
      const [name, argv] = check;
      const log = join(directory, `check-${name.replaceAll(/\W+/g, '-')}.log`);
      const { code } = await command(argv, env, log);
      process.stdout.write(`\n== ${name}\n${readFileSync(log, 'utf8')}`);
      if (code === 0) tally.passed++;
      else {
        tally.failed++;
        tally.failures.push(name);
      }
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() + 1 }, lane));
}

/** Tests then start the programs from dist/. @throws Error where one cannot be built */
async function buildPrograms(): Promise<void> {
  const { code } = await command(['node', 'build.ts'], env);
  if (code !== 0) throw new Error('the programs cannot be built: no test was run');
  Object.assign(env, { [BUILT_VARIABLE]: '1' });
}

async function main(only: string[]): Promise<number> {
  const unknown = only.find((name) => name !== 'checks' && !PARTS.includes(name));
  if (unknown !== undefined) {
    console.error(`no part is called ${unknown}; there are: checks ${PARTS.join(' ')}`);
    return 2;
  }
  const wanted = (name: string) => only.length === 0 || only.includes(name);
  const tally = new Tally();
  const directory = mkdtempSync(join(tmpdir(), 'otela-report-'));
  try {
    const checks = wanted('checks');
    await Promise.all([buildPrograms(), ...(checks ? [runChecks(CHECKS, directory, tally)] : [])]);
    if (checks) await runChecks(DEPLOY_CHECK, directory, tally);
    await runParts(PARTS.filter(wanted), directory, tally);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  console.log(`\nSeconds by part:\n${tally.parts()}`);
  if (tally.times.length > SLOWEST) console.log(`\nThe slowest files:\n${tally.slowest(SLOWEST)}\n`);
  for (const test of tally.flaky) console.log(`flaky, passed at the second try: ${test}`);
  for (const test of tally.failures) console.log(`failed: ${test}`);
  addToLedger(tally.flaky, new Date());
  const { passed, failed, skipped } = tally;
  console.log(`\n${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`);
  return failed === 0 && passed > 0 ? 0 : 1;
}

/** Paths from the root that differ from main, uncommitted and new ones included. */
function changedPaths(): string[] {
  const git = (...args: string[]) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).split('\n');
  const base = git('merge-base', 'HEAD', 'main')[0] ?? 'main';
  const all = [...git('diff', '--name-only', base), ...git('ls-files', '--others', '--exclude-standard')];
  return all.filter((path) => path !== '');
}

/** The tests of the rooms that differ from main, one part after the other. */
async function mainOfChanged(): Promise<number> {
  const tests = testsOf(changedPaths(), ROOT);
  const tally = new Tally();
  const directory = mkdtempSync(join(tmpdir(), 'otela-report-'));
  try {
    for (const [part, paths] of tests) {
      console.log(`\n== ${part}: ${paths.join(' ')}`);
      const { project, env: more } = environmentOf(part);
      const options = { id: `${run}-${part}`, directory, env: { ...env, ...more } };
      tally.add(part, await vitestRun(project, paths, options), undefined);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  for (const test of tally.failures) console.log(`failed: ${test}`);
  console.log(`\n${tally.passed} passed, ${tally.failed} failed, of the rooms that differ from main`);
  return tally.failed === 0 ? 0 : 1;
}

const asked = process.argv.slice(2);
process.exitCode = asked[0] === '--changed' ? await mainOfChanged() : await main(asked);
