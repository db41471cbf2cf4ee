/** The jobs of one run on its host, by a batch system or as processes. */
import type { Host } from '../host/host.ts';
import type { ChosenPool, PoolWish } from '../site/choose-pool.ts';
import type { LoginNode } from '../site/site.ts';
import type { StoredRun } from '../state/runs.ts';
import type { UpError } from '../up-error.ts';
import type { EngineWish } from './job-plan.ts';
import type { JobStatus } from './job-status.ts';
import type { PartitionStart } from './partition-starts.ts';
import type { RunJob } from './run-job-list.ts';

export interface JobsOptions {
  run: StoredRun;
  site: LoginNode;
  wish: { pool: PoolWish; engine: EngineWish };
  /** Command of the agent on the host, with its first arguments; `~/` is the home directory there. */
  agent: readonly string[];
  /** URL of the gateway on this machine, if the jobs reach it; undefined: they use the relay. */
  gateway: string | undefined;
  host: Host;
}

export interface RunJobs {
  /** Uses another connection from now on. */
  connectedAgain(host: Host): void;
  /** Chooses the partition and the time limit of the run's first job. @throws UpError if none fits */
  choose(): ChosenPool;
  /** The partition and the time limit of further jobs: the relay listens for one partition. @throws UpError */
  readonly chosen: ChosenPool;
  /** Submits a job and returns its id. @throws UpError */
  submit(after?: { job: string; minutes: number }): Promise<string>;
  /** Returns the jobs in the order of their submission. @throws UpError if the host does not answer */
  list(): Promise<RunJob[]>;
  /** @throws UpError if the host does not answer */
  status(job: string): Promise<JobStatus>;
  cancel(jobs: readonly string[]): Promise<void>;
  /** Lets a job start now that waits for another one. */
  release(job: string): Promise<void>;
  /** When the job would start in other partitions. */
  startsElsewhere(): Promise<PartitionStart[]>;
  /** Explains the end of a job that did not serve. */
  failure(job: string, state: string): Promise<UpError>;
}
