/** The interface of a batch system: five calls, the same for all. */
import type { ClusterConfig, PoolConfig } from '../config/schema.ts';
import type { Deployment } from '../recipes/job-context.ts';

/**
 * `refused`: the scheduler refused; there is no job. `unreachable`: it could not be asked; the state is unknown.
 * `unclear`: it was asked and did not answer in time; a submission may have become a job.
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

export interface Submission {
  /** Found again in `list`: `otela-FACTORY-CONTEXT-NUMBER`. */
  name: string;
  /** Number of equal jobs. */
  count: number;
  pool: PoolConfig;
  gpus: number;
  /** The script below the directives; it contains this launcher's `jobId`. */
  body: string;
  /** For idle agents, which do not use a script. */
  deployment?: Deployment;
  /** Image of a container that the launcher itself starts: Kubernetes. */
  image?: string;
  /** A file for each job's output; `%j` is the job's id. */
  log: string;
}

/** `ended`: the scheduler reports its end, for any reason. A job that is not listed has not necessarily ended. */
type ListedState = 'pending' | 'running' | 'ended';

export interface ListedJob {
  id: string;
  name: string;
  state: ListedState;
  /** The scheduler's text: why it waits, or how it ended. */
  reason?: string;
  /**
   * Reason of its end: its own failure, preempted by other jobs, its node, its time limit, cancelled; absent: unknown.
   */
  ended?: 'done' | 'failed' | 'preempted' | 'node' | 'time' | 'cancelled';
}

export interface Capacity {
  /** Name of the pool. */
  pool: string;
  /** GPUs of its kind that no job uses. */
  idle: number;
}

export interface CheckFinding {
  ok: boolean;
  text: string;
}

export interface Launcher {
  readonly kind: ClusterConfig['launcher'];
  /** A shell word for the job's id inside the job. */
  readonly jobId: string;
  /** Whether it was tested with the real scheduler, or only with recorded output. */
  readonly seen: 'real' | 'recorded';
  /**
   * Returns the ids of the new jobs.
   *
   * @throws LauncherError
   */
  submit(submission: Submission): Promise<string[]>;
  /**
   * Returns this user's jobs with names that begin with `prefix`, including ended ones that the scheduler still knows.
   *
   * @throws LauncherError
   */
  list(prefix: string): Promise<ListedJob[]>;
  /**
   * undefined: the scheduler cannot report it.
   *
   * @throws LauncherError
   */
  capacity(): Promise<Capacity[] | undefined>;
  /**
   * Sends TERM, then KILL after the scheduler's grace time. Ids of ended jobs are not an error.
   *
   * @throws LauncherError
   */
  cancel(ids: readonly string[]): Promise<void>;
  /**
   * Ends a job after its running requests, at the latest after `withinMs`. absent: the gateway orders the agent to
   * drain.
   *
   * @throws LauncherError
   */
  drain?(id: string, withinMs: number): Promise<void>;
  /**
   * Returns whether a pool would accept such a job, without submitting it.
   *
   * @throws LauncherError
   */
  check(submission: Submission): Promise<CheckFinding>;
}
