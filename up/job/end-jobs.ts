/** Lists and ends the jobs of a run, without its settings: for `otela down` and `otela ls`. */
import type { Host } from '../host/host.ts';
import { type Run, runDirectory } from '../state/runs.ts';
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

/** @throws UpError if the host does not answer */
export async function endJobs(host: Host, run: Run, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await host.output(
    run.batch === 'none' ? endScript(directoryOf(run), ids) : `scancel --quiet ${ids.join(' ')} || true`,
  );
}
