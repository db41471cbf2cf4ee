/**
 * `npm test`: everything that can run on this machine. `npm test -- e2e netns` runs those parts only.
 * Three runs of vitest go side by side on two cores, since tests mostly wait, and those of Slurm and of networks behind NAT, which hardly do anything else,
 * beside them; what each says is printed when it is over. Ends with one line,
 * `N passed, N failed` and `, N skipped` where so; the exit code is 0 only if something ran and nothing failed.
 * Files of tests that failed run a second time, alone: what passes then is named as flaky, counts as passed, and is written into test/flaky.json.
 * `npm test -- --changed`: only the tests of rooms that differ from main. Skipped tests are named
 * where their part ends.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { delimiter, join, relative } from 'node:path';
import { WORKER_FILES } from './conformance/worker-files.ts';
import { cannotRun } from './support/abilities.ts';
import { testsOf } from './support/changed.ts';
import { addToLedger } from './support/flaky-ledger.ts';
import { command, type FileTime, type Outcome, vitestRun } from './support/vitest-run.ts';
import { ROOT } from './support/where.ts';

/** Checks that are one command each, before any test. */
const CHECKS: Record<string, string[]> = {
  biome: ['biome', 'check', '.'],
  'tsc shared': ['tsc', '-p', 'tsconfig.shared.json'],
  'tsc worker': ['tsc', '-p', 'tsconfig.worker.json'],
  'tsc node': ['tsc', '-p', 'tsconfig.node.json'],
  'tsc dashboard': ['tsc', '-p', 'dashboard/tsconfig.json'],
  'wrangler deploy --dry-run': ['npm', 'run', '--silent', 'deploy:check'],
};
/** The longest first, so that all lanes end at about the same time. */
const PROJECTS = [
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
/** A part that is some files of another's, elsewhere. */
const ELSEWHERE: Record<string, { project: string; args: string[]; env: NodeJS.ProcessEnv }> = {
  worker: {
    project: 'conformance',
    args: WORKER_FILES.map((file) => `test/conformance/${file}.test.ts`),
    env: { OTELA_TEST_HOST: 'worker' },
  },
};
/** Its files are divided among so many runs. */
const SHARDS: Record<string, number> = { e2e: 4, conformance: 4 };
/** Loads the machine as far as it goes and allows no error: runs when all others are over. */
const ALONE: ReadonlySet<string> = new Set(['chaos']);
const LANES = Math.min(3, availableParallelism() + 1);
/** They wait for Slurm's turns and for lines that are cut: one after the other in a lane of their own. */
const WAITING: ReadonlySet<string> = new Set(['netns', 'slurm']);
/** Files that are named with their time at the end. */
const SLOWEST = 20;
/** More files than these do not fail by chance, so nothing is run again. */
const SECOND_TRY_MAX = 6;

const run = `test-${randomBytes(6).toString('hex')}`;
const env = {
  ...process.env,
  // npm may run under an older Node of the machine's: ours first.
  PATH: `${join(ROOT, 'node_modules/.bin')}${delimiter}${process.env.PATH ?? ''}`,
  CLOUDFLARE_CF_FETCH_ENABLED: 'false',
  WRANGLER_SEND_METRICS: 'false',
  WRANGLER_SEND_ERROR_REPORTS: 'false',
  WRANGLER_HIDE_BANNER: 'true',
};

/** A part, or a shard of one. */
interface Job {
  project: string;
  /** What it is called in the output, and in the environment of all that it starts. */
  title: string;
  id: string;
  args: string[];
}

function jobsOf(project: string): Job[] {
  const shards = SHARDS[project] ?? 1;
  if (shards === 1) return [{ project, title: project, id: `${run}-${project}`, args: ELSEWHERE[project]?.args ?? [] }];
  return Array.from({ length: shards }, (_, n) => ({
    project,
    title: `${project} ${n + 1}/${shards}`,
    id: `${run}-${project}-${n + 1}`,
    args: [`--shard=${n + 1}/${shards}`],
  }));
}

function runPart(
  part: string,
  args: readonly string[],
  options: { id: string; directory: string; title?: () => string },
): Promise<Outcome> {
  const elsewhere = ELSEWHERE[part];
  return vitestRun(elsewhere?.project ?? part, args, { ...options, env: { ...env, ...elsewhere?.env } });
}

/** Runs `jobs` in their order, `lanes` at once; gives each one's outcome. `quiet`: others speak too, so each is heard when it is over. */
async function runAll(
  jobs: readonly Job[],
  lanes: number,
  { directory, quiet }: { directory: string; quiet: boolean },
): Promise<Map<Job, Outcome>> {
  const outcomes = new Map<Job, Outcome>();
  const left = [...jobs];
  const lane = async () => {
    for (let job = left.shift(); job !== undefined; job = left.shift()) {
      const { project, title, id, args } = job;
      console.log(quiet ? `-- ${title} begins` : `\n== ${title}`);
      const startedAt = performance.now();
      const ended = () => `\n== ${title}, ${Math.round((performance.now() - startedAt) / 1_000)} s`;
      outcomes.set(job, await runPart(project, args, { id, directory, ...(quiet ? { title: ended } : {}) }));
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return outcomes;
}

class Tally {
  passed = 0;
  failed = 0;
  skipped = 0;
  /** `file > test` of what passed at the second try only. */
  readonly flaky: string[] = [];
  /** Of every file, where it ran first. */
  readonly times: FileTime[] = [];

  /** All of one project, and what its second try gave, if there was one. */
  add(first: Outcome, second: Outcome | undefined): void {
    const failed = second?.failed ?? first.failed;
    if (second !== undefined) this.flaky.push(...first.failures.filter((test) => !second.failures.includes(test)));
    // A test that passed at first and fails now is one that fails: the sum stays that of the tests that ran.
    this.passed += first.passed + first.failed - failed;
    this.failed += failed;
    this.skipped += first.skipped;
    this.times.push(...first.times);
  }

  /** Where a run's time goes: what to look at when it becomes too long. */
  slowest(count: number): string {
    const slow = this.times.toSorted((a, b) => b.seconds - a.seconds).slice(0, count);
    return slow.map(({ file, seconds }) => `  ${seconds.toFixed(0).padStart(4)} s  ${file}`).join('\n');
  }
}

function sum(outcomes: readonly Outcome[]): Outcome {
  return {
    passed: outcomes.reduce((total, { passed }) => total + passed, 0),
    failed: outcomes.reduce((total, { failed }) => total + failed, 0),
    skipped: outcomes.reduce((total, { skipped }) => total + skipped, 0),
    failedFiles: outcomes.flatMap(({ failedFiles }) => failedFiles),
    failures: outcomes.flatMap(({ failures }) => failures),
    times: outcomes.flatMap(({ times }) => times),
  };
}

async function runProjects(projects: readonly string[], directory: string, tally: Tally): Promise<void> {
  const able = projects.filter((name) => {
    const reason = cannotRun(name);
    if (reason === undefined) return true;
    console.log(`\n== ${name}\nskipped: ${reason}`);
    tally.skipped++;
    return false;
  });
  const together = able.filter((name) => !ALONE.has(name) && !WAITING.has(name)).flatMap(jobsOf);
  const waiting = able.filter((name) => WAITING.has(name)).flatMap(jobsOf);
  const alone = able.filter((name) => ALONE.has(name)).flatMap(jobsOf);
  const quiet = together.length + waiting.length > 1;
  const beside = runAll(waiting, 1, { directory, quiet });
  const outcomes = new Map([
    ...(await runAll(together, LANES, { directory, quiet })),
    ...(await beside),
    ...(await runAll(alone, 1, { directory, quiet: false })),
  ]);
  for (const name of able) {
    const first = sum([...outcomes].filter(([job]) => job.project === name).map(([, outcome]) => outcome));
    if (first.passed + first.failed === 0) {
      console.error(`${name}: no test ran`);
      first.failed = 1;
    }
    tally.add(first, await secondTry(name, first, directory));
  }
}

async function secondTry(project: string, first: Outcome, directory: string): Promise<Outcome | undefined> {
  const files = first.failedFiles;
  if (first.failed === 0 || files.length === 0 || files.length > SECOND_TRY_MAX) return undefined;
  console.log(`\n== ${project}, a second time: ${files.map((file) => relative(ROOT, file)).join(' ')}`);
  return runPart(project, files, { id: `${run}-${project}-again`, directory });
}

/** Each is one thread for most of its life. */
async function runChecks(directory: string, tally: Tally): Promise<void> {
  const left = Object.entries(CHECKS);
  const lane = async () => {
    for (let check = left.shift(); check !== undefined; check = left.shift()) {
      const [name, argv] = check;
      const log = join(directory, `check-${name.replaceAll(/\W+/g, '-')}.log`);
      const code = await command(argv, env, log);
      process.stdout.write(`\n== ${name}\n${readFileSync(log, 'utf8')}`);
      if (code === 0) tally.passed++;
      else tally.failed++;
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
}

async function main(only: string[]): Promise<number> {
  const unknown = only.find((name) => name !== 'checks' && !PROJECTS.includes(name));
  if (unknown !== undefined) {
    console.error(`no part is called ${unknown}; there are: checks ${PROJECTS.join(' ')}`);
    return 2;
  }
  const wanted = (name: string) => only.length === 0 || only.includes(name);
  const tally = new Tally();
  const directory = mkdtempSync(join(tmpdir(), 'otela-report-'));
  try {
    if (wanted('checks')) await runChecks(directory, tally);
    await runProjects(PROJECTS.filter(wanted), directory, tally);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  if (tally.times.length > SLOWEST) console.log(`\nThe slowest files:\n${tally.slowest(SLOWEST)}\n`);
  for (const test of tally.flaky) console.log(`flaky, passed at the second try: ${test}`);
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
    for (const [project, paths] of tests) {
      console.log(`\n== ${project}: ${paths.join(' ')}`);
      tally.add(await vitestRun(project, paths, { id: `${run}-${project}`, directory, env }), undefined);
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  console.log(`\n${tally.passed} passed, ${tally.failed} failed, of the rooms that differ from main`);
  return tally.failed === 0 ? 0 : 1;
}

const asked = process.argv.slice(2);
process.exitCode = asked[0] === '--changed' ? await mainOfChanged() : await main(asked);
