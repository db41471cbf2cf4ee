/** The interface of a batch system: five calls that each launcher implements. */
import type { Capacity, JobSubmission, ListedJob } from '../../node/batch-systems/batch-system.ts';
import type { ClusterConfig, PoolConfig } from '../config/schema.ts';
import type { Deployment } from '../recipes/job-context.ts';

/**
 * `refused`: the scheduler refused, so there is no job. `unreachable`: the scheduler did not answer a query, so the
 * state is unknown. `unclear`: the scheduler did not answer a submission in time, so a job may exist.
 */
type LauncherErrorCode = 'refused' | 'unreachable' | 'unclear';

export class LauncherError extends Error {
  override name = 'LauncherError';
  readonly code: LauncherErrorCode;

  constructor(code: LauncherErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

export interface Submission extends JobSubmission {
  pool: PoolConfig;
  /** The deployment for idle agents, which do not run a script. */
  deployment?: Deployment;
  /** Image of the container, for launchers that start containers themselves (Kubernetes). */
  image?: string;
}

export interface CheckFinding {
  ok: boolean;
  text: string;
}

export interface Launcher {
  readonly kind: ClusterConfig['launcher'];
  /** A shell expression that gives the job's id inside the job. */
  readonly jobId: string;
  /** `real`: tested with a real scheduler. `recorded`: tested only with recorded output. */
  readonly seen: 'real' | 'recorded';
  /** Submits jobs and returns their ids. @throws LauncherError */
  submit(submission: Submission): Promise<string[]>;
  /**
   * Returns this user's jobs with names that begin with `prefix`, including ended ones that the scheduler still knows.
   *
   * @throws LauncherError
   */
  list(prefix: string): Promise<ListedJob[]>;
  /** Returns idle GPUs by pool; undefined if the scheduler cannot report them. @throws LauncherError */
  capacity(): Promise<Capacity[] | undefined>;
  /**
   * Sends TERM to jobs, then KILL after the scheduler's grace time. Ids of ended jobs are not an error.
   * @throws LauncherError
   */
  cancel(ids: readonly string[]): Promise<void>;
  /**
   * Ends a job after its running requests, at the latest after `withinMs`. Absent: the gateway orders the node to drain
   * instead.
   * @throws LauncherError
   */
  drain?(id: string, withinMs: number): Promise<void>;
  /** Checks whether a pool would accept such a job, without submitting it. @throws LauncherError */
  check(submission: Submission): Promise<CheckFinding>;
}
