/** The status of a job at a host that is out of reach at times: a job may wait for hours, and a laptop sleeps. */
import { setTimeout as delay } from 'node:timers/promises';
import { HostGoneError, UpError } from '../up-error.ts';
import type { JobStatus } from './job-status.ts';
import type { RunJobs } from './run-jobs.ts';

/** Pauses between two tries to reach the host. */
export const AGAIN_MS = 2_000;
export const AGAIN_MAX_MS = 60_000;

interface LossyHost {
  jobs: Pick<RunJobs, 'status'>;
  /** `lost`: why the relay ended; undefined while it is up. */
  connection: { readonly lost: UpError | undefined };
  connectAgain(): Promise<void>;
  signal: AbortSignal;
}

/**
 * Asks for the status of a job. Connects again first if the relay is lost: without it the job's agent cannot join. While
 * the host does not answer, the status is unknown.
 * @throws HostGoneError if the host does not exist any more, and the signal's reason
 */
export function statusAcrossLosses({ jobs, connection, connectAgain, signal }: LossyHost): RunJobs['status'] {
  let pauseMs = 0;
  return async (job: string): Promise<JobStatus> => {
    if (pauseMs > 0) await delay(pauseMs, undefined, { signal });
    try {
      if (connection.lost !== undefined) await connectAgain();
      const status = await jobs.status(job);
      pauseMs = 0;
      return status;
    } catch (error) {
      if (!(error instanceof UpError) || error instanceof HostGoneError) throw error;
      pauseMs = Math.min(Math.max(2 * pauseMs, AGAIN_MS), AGAIN_MAX_MS);
      return { kind: 'unknown', reason: error.message.split('\n', 1)[0] ?? '' };
    }
  };
}
