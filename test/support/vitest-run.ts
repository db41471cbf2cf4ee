/** Starts one run of vitest, reads its results, and ends the processes that it left behind. */
import { spawn } from 'node:child_process';
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import { errorText } from '../../shared/text/error-text.ts';
import { endedChildrenSeconds } from './ended-children.ts';
import { slowness } from './patience.ts';
import { MARK, sweep } from './processes.ts';
import { type Failure, type FileReport, REPORT_VARIABLE, type RunReport } from './reporter.ts';
import { ROOT } from './where.ts';

/** Time limit of a run. A longer run counts as hanging. A machine with a fifth of one core may take that long. */
const LIMIT_MS = 45 * 60_000 * Math.max(1, slowness() / 3);

const reportSchema: z.ZodType<RunReport> = z.object({
  passed: z.number(),
  skipped: z.number(),
  failures: z.array(
    z.object({
      file: z.string().exactOptional(),
      test: z.string().exactOptional(),
      message: z.string(),
      again: z.string().exactOptional(),
    }),
  ),
  files: z.array(z.object({ file: z.string(), seconds: z.number(), cpuSeconds: z.number().exactOptional() })),
});

export interface Outcome {
  passed: number;
  skipped: number;
  failures: Failure[];
  files: FileReport[];
  wallSeconds: number;
  /** CPU time of vitest and of all processes that its tests started and waited for. */
  cpuSeconds: number;
}

/**
 * The files that run a second time. None if more than `most` failed, or if the run failed outside a file, because its
 * results are then incomplete.
 */
export function filesToTryAgain(failures: readonly Failure[], most: number): string[] {
  const files = new Set(failures.flatMap(({ file }) => (file === undefined ? [] : [file])));
  return failures.some(({ file }) => file === undefined) || files.size > most ? [] : [...files];
}

interface Exit {
  code: number;
  /** CPU time of the process and of its children that it waited for. */
  cpuSeconds: number;
}

let secondsBefore = 0;

/** `logTo`: its output goes into this file; absent: it is printed immediately. */
export async function command(argv: string[], env: NodeJS.ProcessEnv, logTo?: string, cwd = ROOT): Promise<Exit> {
  const [file = '', ...args] = argv;
  const log = logTo === undefined ? undefined : await open(logTo, 'w');
  const output = log === undefined ? 'inherit' : log.fd;
  const child = spawn(file, args, { cwd, env, stdio: ['ignore', output, output] });
  const timer = setTimeout(() => child.kill('SIGKILL'), LIMIT_MS);
  let cpuSeconds = 0;
  const code = await new Promise<number>((resolve) => {
    child.once('error', (error) => {
      console.error(`${file}: ${error.message}`);
      resolve(1);
    });
    // Node waits for a child just before this event, so the CPU time since the last event belongs to this child.
    child.once('exit', () => {
      const seconds = endedChildrenSeconds();
      cpuSeconds = seconds - secondsBefore;
      secondsBefore = seconds;
    });
    child.once('close', (code) => resolve(code ?? 1));
  });
  clearTimeout(timer);
  await log?.close();
  return { code, cpuSeconds };
}

/** The reporter's results. A run that failed without a failed test, or without a report, counts as one failure. */
async function readReport(path: string, code: number): Promise<RunReport> {
  try {
    const report = reportSchema.parse(JSON.parse(await readFile(path, 'utf8')));
    if (code === 0 || report.failures.length > 0) return report;
    return { ...report, failures: [{ message: `vitest ended with ${code}, and no test failed` }] };
  } catch (error) {
    const why = errorText(error);
    return {
      passed: 0,
      skipped: 0,
      failures: [{ message: `vitest ended with ${code} and no report: ${why}` }],
      files: [],
    };
  }
}

export interface RunOptions {
  /** A unique name, by which processes that its tests left running are found and ended. */
  id: string;
  /** The directory of its report and log. */
  directory: string;
  env: NodeJS.ProcessEnv;
  /** The run's output is printed under this title when it has ended. Absent: output is printed immediately. */
  title?: string;
  /** The directory of another clone. */
  cwd?: string;
  /** True: the run prints nothing. */
  quiet?: boolean;
}

export async function vitestRun(
  project: string,
  files: readonly string[],
  { id, directory, env, title, cwd, quiet }: RunOptions,
): Promise<Outcome> {
  const report = join(directory, `${id}.json`);
  const log = join(directory, `${id}.log`);
  const argv = ['vitest', 'run', '--project', project, ...files];
  const startedAt = performance.now();
  const { code, cpuSeconds } = await command(
    argv,
    { ...env, [MARK]: id, [REPORT_VARIABLE]: report },
    title && log,
    cwd,
  );
  const wallSeconds = (performance.now() - startedAt) / 1_000;
  const took = `${Math.round(wallSeconds)} s, CPU ${Math.round(cpuSeconds)} s`;
  if (!quiet)
    process.stdout.write(
      `\n== ${title ?? project}, ${took}\n${title === undefined ? '' : await readFile(log, 'utf8')}`,
    );
  for (const left of sweep(id)) console.error(`left running by ${project}, ended now: ${left}`);
  return { ...(await readReport(report, code)), wallSeconds, cpuSeconds };
}
