/**
 * `npm test` runs the short form, which proves the product in minutes; `npm run test:all` adds the rest
 * (test/tiers.ts). `-- e2e netns` runs only these parts. `-- --changed` runs the form's files that can be affected by
 * the differences from main. `--ci`, used by .ci/run, runs the short form, and of the rest the files that can be
 * affected by the differences from the main of `origin`, or all if there is none. With `--end-within MINUTES`,
 * files of the long form that would end later do not begin; they are listed, and count as skipped.
 *
 * Several runs of vitest run concurrently, the longest first, because tests mostly wait; the output of each is printed
 * when it ends.
 *
 * The last line is `N passed, N failed`, with `, N skipped` if any were. The exit code is 0 only if something ran and
 * nothing failed. Failed test files run a second time, separately: tests that then pass are listed as flaky and count
 * as passed, but `npm run test:all` still fails. The whole short form also fails above its budget of CPU time
 * (test/support/tally.ts), unless `--no-budget` or `--ci` is given.
 */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { parseArgs } from 'node:util';
import { cannotRun } from './support/abilities.ts';
import { changedSinceMain, changedSinceOrigin } from './support/change.ts';
import { environmentOf, filesOf, type Job, jobsOf } from './support/jobs.ts';
import { LONG_VARIABLE } from './support/long-form.ts';
import { slowness } from './support/patience.ts';
import { Reach } from './support/reach.ts';
import { failureLines } from './support/reporter.ts';
import './support/slowness.ts';
import { TestTally, together } from './support/tally.ts';
import { TimeLeft } from './support/time-left.ts';
import { command, filesToTryAgain, type Outcome, vitestRun } from './support/vitest-run.ts';
import { BUILT_VARIABLE, COMPILE_CACHE, ROOT } from './support/where.ts';
import { isShort, NOT_IN_CI, PARTS } from './tiers.ts';

/** Checks that are one command each, before any test. */
const CHECKS: Record<string, string[]> = {
  biome: ['biome', 'check', '.'],
  'lock file': ['node', 'packaging/install/package-lock.ts', '--check'],
  'generated files': ['node', 'packaging/generated.ts'],
  imports: ['node', 'packaging/imports.ts'],
  promises: ['node', 'packaging/floating-promises.ts'],
  commits: ['node', 'packaging/commits.ts'],
  markdownlint: ['markdownlint-cli2'],
  cspell: ['cspell', '--no-progress', '--no-summary'],
  'tsc shared': ['tsc', '-p', 'tsconfig.shared.json'],
  'tsc worker': ['tsc', '-p', 'tsconfig.worker.json'],
  'tsc node': ['tsc', '-p', 'tsconfig.node.json'],
  'tsc dashboard': ['npm', 'run', '--silent', 'lint:dashboard'],
  'the runner': ['node', '--test', 'test/support/runner.check.ts'],
};
/** Bundles the page, which must be built before. */
const DEPLOY_CHECK: Record<string, string[]> = {
  'wrangler deploy --dry-run': ['npm', 'run', '--silent', 'deploy:check'],
};
/** Loads the machine fully and allows no error, so it runs before all others. */
const ALONE: ReadonlySet<string> = new Set(['chaos']);
/**
 * Tests wait for two thirds of their time, so this many runs of vitest keep the cores busy. On a slow machine they wait
 * less, and vitest gives a worker only 90 s to start.
 */
const LANES = slowness() > 3 ? 2 : Math.min(3 * availableParallelism(), 12);
/**
 * They compute, or a browser does for them. One runs at a time next to those that wait, because more would break time
 * bounds.
 */
const COMPUTING: ReadonlySet<string> = new Set([
  'browser',
  'docs',
  'sim',
  'shared',
  'node',
  'scheduler',
  'factory',
  'research',
  'up',
]);
/** More failed files than this are not chance, so nothing is run again. */
const SECOND_TRY_MAX = 6;

const run = `test-${randomBytes(6).toString('hex')}`;
const env: NodeJS.ProcessEnv = {
  ...process.env,
  // npm may run under an older Node of the machine, so this Node is first.
  PATH: `${join(ROOT, 'node_modules/.bin')}${delimiter}${process.env.PATH ?? ''}`,
  // For vitest itself and for its workers.
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

interface Running {
  /** For the reports. */
  directory: string;
  /** Other output is printed meanwhile, so each job's output is printed at its end. */
  quiet: boolean;
  timeLeft: TimeLeft;
  tally: TestTally;
}

/**
 * Runs `jobs` in their order, `lanes` concurrently, and returns each one's outcome. While waiting jobs are left, only
 * one computing job runs; afterwards one per core.
 */
async function runAll(
  jobs: readonly Job[],
  lanes: number,
  { directory, quiet, timeLeft, tally }: Running,
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
  // A lane ends if only computing jobs are left and enough of them run.
  const lane = async () => {
    for (let job = next(); job !== undefined; job = next()) {
      const { part, project, title } = job;
      const files = timeLeft.begin(job, performance.now() / 1_000, left);
      tally.leaveOut(job.files.filter((file) => !files.includes(file)));
      const isComputing = COMPUTING.has(part);
      if (isComputing) computing++;
      if (files.length > 0) {
        console.log(quiet ? `-- ${title} begins` : `\n== ${title}`);
        const options = { id: `${run}-${title.replaceAll(/\W+/g, '-')}`, directory, env: { ...env, ...job.env } };
        const outcome = await vitestRun(project, files, { ...options, ...(quiet ? { title } : {}) });
        ended.push({ job, outcome });
        timeLeft.ended(job, files, outcome.wallSeconds);
      }
      if (isComputing) computing--;
      else waiting--;
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return ended;
}

/** Runs these files by part, and failed files a second time. */
async function runFiles(files: ReadonlyMap<string, readonly string[]>, running: Omit<Running, 'quiet'>): Promise<void> {
  const { directory, tally } = running;
  const able = new Map(
    [...files].filter(([part]) => {
      const reason = cannotRun(part);
      if (reason === undefined) return true;
      console.log(`\n== ${part}\nskipped: ${reason}`);
      tally.cannotRun(part);
      return false;
    }),
  );
  const jobs = jobsOf(able);
  const alone = jobs.filter(({ part }) => ALONE.has(part));
  const sideBySide = jobs.filter(({ part }) => !ALONE.has(part));
  const ended = [
    ...(await runAll(alone, 1, { ...running, quiet: false })),
    ...(await runAll(sideBySide, LANES, { ...running, quiet: sideBySide.length > 1 })),
  ];
  for (const part of able.keys()) {
    const outcomes = ended.filter(({ job }) => job.part === part).map(({ outcome }) => outcome);
    if (outcomes.length === 0) continue;
    const first = together(outcomes);
    if (first.passed + first.failures.length === 0) first.failures.push({ message: `no test of ${part} ran` });
    tally.add(part, first, await secondTry(part, first, directory));
  }
}

async function secondTry(part: string, { failures }: Outcome, directory: string): Promise<Outcome | undefined> {
  const files = filesToTryAgain(failures, SECOND_TRY_MAX);
  if (files.length === 0) return undefined;
  console.log(`\n== ${part}, a second time: ${files.join(' ')}`);
  const { project, env: more } = environmentOf(part);
  return vitestRun(project, files, { id: `${run}-${part}-again`, directory, env: { ...env, ...more } });
}

/** Each is one thread for most of its time. */
async function runChecks(checks: Record<string, string[]>, directory: string, tally: TestTally): Promise<void> {
  const left = Object.entries(checks);
  const lane = async () => {
    for (let check = left.shift(); check !== undefined; check = left.shift()) {
      const [name, argv] = check;
      const log = join(directory, `check-${name.replaceAll(/\W+/g, '-')}.log`);
      const { code, cpuSeconds } = await command(argv, env, log);
      process.stdout.write(`\n== ${name}\n${readFileSync(log, 'utf8')}`);
      tally.check(name, code === 0 ? undefined : argv.join(' '), cpuSeconds);
    }
  };
  await Promise.all(Array.from({ length: availableParallelism() + 1 }, lane));
}

/** Makes tests start the programs from dist/. @throws Error if one cannot be built */
async function buildPrograms(tally: TestTally): Promise<void> {
  const { code, cpuSeconds } = await command(['node', 'build.ts'], env);
  if (code !== 0) throw new Error('the programs cannot be built: no test was run');
  tally.spent('build', cpuSeconds);
  Object.assign(env, { [BUILT_VARIABLE]: '1' });
}

interface Asked {
  parts: readonly string[];
  checks: boolean;
  all: boolean;
  changed: boolean;
  ci: boolean;
  'no-budget': boolean;
  'end-within'?: string;
}

/** The files of the requested form, by part. */
function chosen({ parts, all, changed, ci }: Asked): Map<string, string[]> {
  const since = changed ? changedSinceMain() : ci ? changedSinceOrigin() : undefined;
  const reached = since && new Reach(ROOT).tests(since);
  if (ci)
    console.log(
      reached ? `the long form of ${reached.size} files that the change reaches` : 'the long form of everything',
    );
  if (ci) for (const [file, why] of Object.entries(NOT_IN_CI)) console.log(`skipped: ${file}: ${why}`);
  const isChosen = (part: string) => (file: string) => {
    const isReached = reached === undefined || reached.has(file);
    if (ci) return (isShort(part, file) || isReached) && !(file in NOT_IN_CI);
    return (all || isShort(part, file)) && isReached;
  };
  const files = parts.map((part): [string, string[]] => [part, filesOf(part).filter(isChosen(part))]);
  return new Map(files.filter(([, some]) => some.length > 0));
}

function asked(argv: string[]): Asked | string {
  const flag = { type: 'boolean', default: false } as const;
  const { values, positionals } = parseArgs({
    args: argv,
    allowPositionals: true,
    options: { all: flag, changed: flag, ci: flag, 'no-budget': flag, 'end-within': { type: 'string' } },
  });
  if (!/^\d+$/.test(values['end-within'] ?? '0')) return '--end-within must be a number of minutes';
  const unknown = positionals.find((name) => name !== 'checks' && !PARTS.some((part) => part === name));
  if (unknown !== undefined) return `no part is called ${unknown}; there are: checks ${PARTS.join(' ')}`;
  const isWanted = (name: string) => positionals.length === 0 || positionals.includes(name);
  return { ...values, parts: PARTS.filter(isWanted), checks: isWanted('checks') && !values.changed };
}

async function main(argv: string[]): Promise<number> {
  const wanted = asked(argv);
  if (typeof wanted === 'string') {
    console.error(wanted);
    return 2;
  }
  const { checks, all, ci, parts } = wanted;
  const files = chosen(wanted);
  for (const part of argv.filter((name) => parts.some((known) => known === name) && !files.has(name)))
    console.log(`${part}: no file of it is in this form; npm run test:all -- ${part}`);
  if (files.size === 0 && !checks) {
    console.log('\n0 passed, 0 failed');
    return wanted.changed ? 0 : 2;
  }
  if (all || ci) env[LONG_VARIABLE] = '1';
  const tally = new TestTally();
  const directory = mkdtempSync(join(tmpdir(), 'otela-report-'));
  try {
    await Promise.all([buildPrograms(tally), ...(checks ? [runChecks(CHECKS, directory, tally)] : [])]);
    if (checks) await runChecks(DEPLOY_CHECK, directory, tally);
    const timeLeft = new TimeLeft(60 * Number(wanted['end-within'] ?? Number.POSITIVE_INFINITY), LANES, slowness());
    await runFiles(files, { directory, tally, timeLeft });
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  console.log(`\n${tally.told()}`);
  const isWhole = checks && parts.length === PARTS.length;
  const isDear = isWhole && !all && !ci && !wanted['no-budget'] && tally.isOverBudget();
  for (const { test, message } of tally.flaky) console.log(`flaky, passed at the second try: ${test}: ${message}`);
  for (const failure of tally.failures) console.log(failureLines(failure));
  const { passed, skipped } = tally;
  const failed = tally.failures.length;
  console.log(`\n${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`);
  return failed === 0 && passed > 0 && !isDear && !(all && tally.flaky.length > 0) ? 0 : 1;
}

process.exitCode = await main(process.argv.slice(2));
