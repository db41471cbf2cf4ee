/** Finds the batch system in which this process runs. */
import type { BatchJob, Env } from './batch-job.ts';
import { fluxJob } from './flux.ts';
import { gridEngineJob } from './grid-engine.ts';
import { htcondorJob } from './htcondor.ts';
import { lsfJob } from './lsf.ts';
import { pbsJob } from './pbs.ts';
import { slurmJob } from './slurm.ts';

/** Returns the innermost job, because Flux runs inside jobs of other systems. Undefined outside a job. */
export function detectBatchJob(env: Env): BatchJob | undefined {
  for (const read of [fluxJob, slurmJob, pbsJob, lsfJob, htcondorJob, gridEngineJob]) {
    const job = read(env);
    if (job !== undefined) return job;
  }
  return undefined;
}
