/** What a factory asks of a batch system: five calls, the same for all. */
import type { ClusterConfig, PoolConfig } from '../config/schema.ts';
import type { Deployment } from '../recipes/job-context.ts';

/**
 * `refused`: the scheduler said no; no job came of it. `unreachable`: it could not be asked; nothing is known. `unclear`: it was asked and did not
 * answer in time; a submission may have become a job.
 */
export type LauncherErrorCode = 'refused' | 'unreachable' | 'unclear';

export class LauncherError extends Error {
  override name = 'LauncherError';
  readonly code: LauncherErrorCode;

  constructor(code: LauncherErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

export interface Submission {
  /** Known again in `list`: `otela-FACTORY-CONTEXT-NUMBER`. */
  name: string;
  /** Jobs that are alike. */
  count: number;
  pool: PoolConfig;
  gpus: number;
  /** The script below the directives; `jobId` of this launcher stands in it. */
  body: string;
  /** For idle agents, which have no use for a script. */
  deployment?: Deployment;
  /** Of a container that the launcher itself starts: Kubernetes. */
  image?: string;
  /** A file for each job's output; `%j` is the job's id. */
  log: string;
}

/** `ended`: the scheduler says that it is over, by itself or by others. A job that is not listed is not thereby over. */
type ListedState = 'pending' | 'running' | 'ended';

export interface ListedJob {
  id: string;
  name: string;
  state: ListedState;
  /** The scheduler's words: why it waits, or how it ended. */
  reason?: string;
  /** Of one that ended: its own fault, taken away by others or by its node, its time over, cancelled; absent: not said. */
  ended?: 'done' | 'failed' | 'preempted' | 'node' | 'time' | 'cancelled';
}

export interface Capacity {
  /** Name of the pool. */
  pool: string;
  /** GPUs of its kind that no job has. */
  idle: number;
}

export interface CheckFinding {
  ok: boolean;
  text: string;
}

export interface Launcher {
  readonly kind: ClusterConfig['launcher'];
  /** A word of shell: the job's id inside of it. */
  readonly jobId: string;
  /** Whether it was seen with the real scheduler, or with recorded output alone. */
  readonly seen: 'real' | 'recorded';
  /** Ids of the new jobs. @throws LauncherError */
  submit(submission: Submission): Promise<string[]>;
  /** This user's jobs whose names begin with `prefix`, ended ones as far as the scheduler still knows them. @throws LauncherError */
  list(prefix: string): Promise<ListedJob[]>;
  /** Undefined where the scheduler cannot say. @throws LauncherError */
  capacity(): Promise<Capacity[] | undefined>;
  /** TERM, then KILL after the scheduler's own grace; ids that have ended are no fault. @throws LauncherError */
  cancel(ids: readonly string[]): Promise<void>;
  /** Ends a job after its running requests, at the latest after `withinMs`. If absent, the gateway orders the agent to drain. @throws LauncherError */
  drain?(id: string, withinMs: number): Promise<void>;
  /** Whether a pool would take such a job: nothing is submitted. @throws LauncherError */
  check(submission: Submission): Promise<CheckFinding>;
}
