/** One run of vitest: started, read, and swept after. */
import { spawn } from 'node:child_process';
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
}

export interface FileTime {
  /** From the root. */
  file: string;
  seconds: number;
}

/** `logTo`: its words go into that file; without it they are seen as they come. Resolves with the exit code. */
export async function command(argv: string[], env: NodeJS.ProcessEnv, logTo?: string): Promise<number> {
  const [file = '', ...args] = argv;
  const log = logTo === undefined ? undefined : await open(logTo, 'w');
  const output = log === undefined ? 'inherit' : log.fd;
  const child = spawn(file, args, { cwd: ROOT, env, stdio: ['ignore', output, output] });
  const timer = setTimeout(() => child.kill('SIGKILL'), LIMIT_MS);
  const status = await new Promise<number>((resolve) => {
    child.once('error', (error) => {
      console.error(`${file}: ${error.message}`);
      resolve(1);
    });
    child.once('close', (code) => resolve(code ?? 1));
  });
  clearTimeout(timer);
  await log?.close();
  return status;
}

/** What vitest's JSON report says; a file that failed to load, and a run that failed with no failed test, count as one failure each. */
async function readReport(path: string, status: number): Promise<Outcome> {
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
 * `id` is a name of its own, by which what its tests leave running is found and ended; report and log are in `directory`. `args` are
 * vitest's: a shard, files. With a `title` what it says is printed under that when it is over, else as it comes.
 */
export async function vitestRun(
  project: string,
  args: readonly string[],
  { id, directory, env, title }: { id: string; directory: string; env: NodeJS.ProcessEnv; title?: () => string },
): Promise<Outcome> {
  const report = join(directory, `${id}.json`);
  const log = join(directory, `${id}.log`);
  const skipped = join(ROOT, 'test/support/skipped.ts');
  const reporters = ['--reporter=default', `--reporter=${skipped}`, '--reporter=json', `--outputFile.json=${report}`];
  const argv = ['vitest', 'run', '--project', project, ...reporters, ...args];
  const status = await command(argv, { ...env, [MARK]: id }, title && log);
  if (title !== undefined) process.stdout.write(`${title()}\n${await readFile(log, 'utf8')}`);
  const outcome = await readReport(report, status);
  for (const left of sweep(id)) console.error(`left running by ${project}, ended now: ${left}`);
  return outcome;
}
