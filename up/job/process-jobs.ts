/** The job of a run on a machine without a batch system: a group of processes. */
import type { Host } from '../host/host.ts';
import type { ChosenPool } from '../site/choose-pool.ts';
import { runDirectory } from '../state/runs.ts';
import { UpError } from '../up-error.ts';
import { endJobs, listJobs } from './end-jobs.ts';
import { jobFailure } from './job-failure.ts';
import { processScript, triedSettings } from './job-plan.ts';
import type { JobStatus } from './job-status.ts';
import type { PartitionStart } from './partition-starts.ts';
import { startScript } from './process-list.ts';
import type { RunJob } from './run-job-list.ts';
import type { JobsOptions, RunJobs } from './run-jobs.ts';
import { smallerSettings } from './smaller-settings.ts';

export class ProcessJobs implements RunJobs {
  readonly #options: JobsOptions;
  #host: Host;

  constructor(options: JobsOptions) {
    this.#options = options;
    this.#host = options.host;
  }

  connectedAgain(host: Host): void {
    this.#host = host;
  }

  choose(): ChosenPool {
    return this.chosen;
  }

  /** The whole machine; a process has no time limit. The relay listens at its loopback address. */
  get chosen(): ChosenPool {
    const { pool } = this.#options.wish;
    const gpu = { gpu: pool.gpu, gpusPerNode: pool.gpus, openNodes: 1, longestMs: undefined };
    return { pool: { partition: 'machine', isDefault: true, address: 'localhost', ...gpu }, time: '0' };
  }

  async submit(): Promise<string> {
    const { run, site, wish, agent, gateway } = this.#options;
    const { pool, time } = this.chosen;
    const script = processScript({ run: run.value, site, pool, time, wish: wish.engine, agent, gateway });
    const [, id] =
      /^job=(\d{1,12})$/m.exec(await this.#host.output(startScript(`"$HOME"/${runDirectory(run.value)}`), script)) ??
      [];
    if (id === undefined) throw new UpError(`The engine was not started on ${this.#host.host}.`, 'Run otela up again.');
    return id;
  }

  async list(): Promise<RunJob[]> {
    return listJobs(this.#host, this.#options.run.value);
  }

  async status(job: string): Promise<JobStatus> {
    const found = (await this.list()).find(({ id }) => id === job);
    if (found?.state !== 'running') return { kind: 'ended', state: found?.reason ?? 'ended' };
    return { kind: 'running', node: this.#options.site.host };
  }

  async cancel(jobs: readonly string[]): Promise<void> {
    await endJobs(this.#host, this.#options.run.value, jobs);
  }

  async release(): Promise<void> {}

  async startsElsewhere(): Promise<PartitionStart[]> {
    return [];
  }

  failure(job: string, state: string): Promise<UpError> {
    const smaller = (said: string) => smallerSettings(triedSettings(this.#options, this.chosen.pool.gpusPerNode), said);
    return jobFailure(this.#host, { run: this.#options.run.value, job, state, smaller });
  }
}
