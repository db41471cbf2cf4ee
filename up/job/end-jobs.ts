/** Lists and ends the jobs of a run, without its settings: for `otela down` and `otela ls`. */
import type { Host } from '../host/host.ts';
import { type Run, runDirectory } from '../state/runs.ts';
import { UpError } from '../up-error.ts';
import { runJobName } from './job-plan.ts';
import { endScript, parseProcessList, processListScript } from './process-list.ts';
import { jobListScript, parseJobList, type RunJob } from './run-job-list.ts';

const directoryOf = (run: Run) => `"$HOME"/${runDirectory(run)}`;

/** @throws UpError if the host does not answer */
export async function listJobs(host: Host, run: Run): Promise<RunJob[]> {
  return run.batch === 'none'
    ? parseProcessList(await host.output(processListScript(directoryOf(run))))
    : parseJobList(await host.output(jobListScript(runJobName(run))));
}

/** A line of the script below: Slurm did not list the jobs. */
const LIST_FAILED = 'otela-jobs failed';
/** Precedes the processes. Their lines look like those of Slurm's jobs. */
const PROCESSES = 'otela-processes';
/** As in the check of the host, of which this script is a part. */
const LIST_S = 30;

/** Lists the jobs of a run before it is known whether the host has Slurm. */
export function foundJobsScript(run: Run): string {
  return `if command -v squeue >/dev/null 2>&1; then
  timeout ${LIST_S} ${jobListScript(runJobName(run))} 2>/dev/null || echo '${LIST_FAILED}'
fi
echo '${PROCESSES}'
(
${processListScript(directoryOf(run))}
)`;
}

/**
 * Reads the output of `foundJobsScript`. The run says whether its jobs are Slurm's.
 * @throws UpError if Slurm did not list them: the run may have a job, and a second one must not start
 */
export function parseFoundJobs(run: Run, out: string): RunJob[] {
  const [jobs = '', processes = ''] = out.split(`\n${PROCESSES}\n`);
  if (run.batch === 'none') return parseProcessList(processes);
  if (jobs.split('\n').includes(LIST_FAILED))
    throw new UpError(`Slurm on ${run.host} does not list your jobs.`, 'Check that squeue works there.');
  return parseJobList(jobs);
}

/** @throws UpError if the host does not answer */
export async function endJobs(host: Host, run: Run, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await host.output(
    run.batch === 'none' ? endScript(directoryOf(run), ids) : `scancel --quiet ${ids.join(' ')} || true`,
  );
}
