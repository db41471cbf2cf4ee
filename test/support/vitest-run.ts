/** One run of vitest: started, read, and swept after. */
import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { open, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { z } from 'zod';
import { MARK, sweep } from './processes.ts';
import { ROOT } from './where.ts';

/** What runs longer hangs. */
const LIMIT_MS = 45 * 60_000;

const reportSchema = z.object({
  numPassedTests: z.number(),
  numFailedTests: z.number(),
  numPendingTests: z.number(),
  numTodoTests: z.number(),
  testResults: z.array(
    z.object({
      name: z.string(),
      status: z.string(),
      startTime: z.number(),
      endTime: z.number(),
      assertionResults: z.array(z.object({ status: z.string(), fullName: z.string() })),
    }),
  ),
});

export interface Outcome {
  passed: number;
  failed: number;
  skipped: number;
  /** Absolute paths of test files. */
  failedFiles: string[];
  /** `file > test` of what failed. */
  failures: string[];
  /** How long each file took, its imports left out. */
  times: FileTime[];
  wallSeconds: number;
  /** Of vitest and all that its tests started and waited for; daemons that leave their parent, as Slurm's, are not in it. */
  cpuSeconds: number;
}

/**
 * Absolute paths of the files that run a second time; none if more than `most` failed, or if a run broke without a failed file:
 * then it is not known what it would have said.
 */
export function filesToTryAgain(outcomes: readonly Outcome[], most: number): string[] {
  const broke = outcomes.some(({ failed, failedFiles }) => failed > 0 && failedFiles.length === 0);
  const files = outcomes.flatMap(({ failedFiles }) => failedFiles);
  return broke || files.length > most ? [] : files;
}

export interface FileTime {
  /** From the root. */
  file: string;
  seconds: number;
}

interface Exit {
  code: number;
  /** Of the process and of those that it waited for. */
  cpuSeconds: number;
}

/** Linux counts in ticks of 10 ms (`getconf CLK_TCK`). */
const TICKS_PER_SECOND = 100;
let childrenTicks = 0;

/** What children of this process have used that ended since the last call; 0 where there is no /proc. */
function endedCpuSeconds(): number {
  try {
    const stat = readFileSync('/proc/self/stat', 'utf8');
    // cutime and cstime: fields 16 and 17 of proc(5), the name in brackets being the second.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const ticks = Number(fields[13]) + Number(fields[14]);
    const used = ticks - childrenTicks;
    childrenTicks = ticks;
    return used / TICKS_PER_SECOND;
  } catch {
    return 0;
  }
}

/** `logTo`: its words go into that file; without it they are seen as they come. */
export async function command(argv: string[], env: NodeJS.ProcessEnv, logTo?: string): Promise<Exit> {
  const [file = '', ...args] = argv;
  const log = logTo === undefined ? undefined : await open(logTo, 'w');
  const output = log === undefined ? 'inherit' : log.fd;
  const child = spawn(file, args, { cwd: ROOT, env, stdio: ['ignore', output, output] });
  const timer = setTimeout(() => child.kill('SIGKILL'), LIMIT_MS);
  let cpuSeconds = 0;
  const code = await new Promise<number>((resolve) => {
    child.once('error', (error) => {
      console.error(`${file}: ${error.message}`);
      resolve(1);
    });
    // A child is waited for in the moment before this event: what was added since the last one is its own.
    child.once('exit', () => {
      cpuSeconds = endedCpuSeconds();
    });
    child.once('close', (code) => resolve(code ?? 1));
  });
  clearTimeout(timer);
  await log?.close();
  return { code, cpuSeconds };
}

/** What vitest's JSON report says; a file that failed to load, and a run that failed with no failed test, count as one failure each. */
async function readReport(path: string, status: number): Promise<Omit<Outcome, 'wallSeconds' | 'cpuSeconds'>> {
  try {
    const report = reportSchema.parse(JSON.parse(await readFile(path, 'utf8')));
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
      times: report.testResults.map(({ name, startTime, endTime }) => ({
        file: relative(ROOT, name),
        seconds: (endTime - startTime) / 1_000,
      })),
    };
  } catch (error) {
    console.error(`no report: ${error instanceof Error ? error.message : String(error)}`);
    return { passed: 0, failed: 1, skipped: 0, failedFiles: [], failures: [], times: [] };
  }
}

/**
 * `id` is a name of its own, by which what its tests leave running is found and ended; report and log are in `directory`. With a `title`
 * what it says is printed under that when it is over, else as it comes.
 */
export async function vitestRun(
  project: string,
  files: readonly string[],
  { id, directory, env, title }: { id: string; directory: string; env: NodeJS.ProcessEnv; title?: string },
): Promise<Outcome> {
  const report = join(directory, `${id}.json`);
  const log = join(directory, `${id}.log`);
  const skipped = join(ROOT, 'test/support/skipped.ts');
  const reporters = ['--reporter=default', `--reporter=${skipped}`, '--reporter=json', `--outputFile.json=${report}`];
  const argv = ['vitest', 'run', '--project', project, ...reporters, ...files];
  const startedAt = performance.now();
  const { code, cpuSeconds } = await command(argv, { ...env, [MARK]: id }, title && log);
  const wallSeconds = (performance.now() - startedAt) / 1_000;
  const took = `${Math.round(wallSeconds)} s, CPU ${Math.round(cpuSeconds)} s`;
  process.stdout.write(`\n== ${title ?? project}, ${took}\n${title === undefined ? '' : await readFile(log, 'utf8')}`);
  const outcome = { ...(await readReport(report, code)), wallSeconds, cpuSeconds };
  for (const left of sweep(id)) console.error(`left running by ${project}, ended now: ${left}`);
  return outcome;
}
