/** The jobs of one run by Slurm's commands. */
import type { Launcher } from '../../factory/launchers/launcher.ts';
import type { Host } from '../host/host.ts';
import { type ChosenPool, choosePool } from '../site/choose-pool.ts';
import { UpError } from '../up-error.ts';
import { endJobs, listJobs } from './end-jobs.ts';
import { jobFailure } from './job-failure.ts';
import { launcherOn, planJob, submitFailure } from './job-plan.ts';
import { type JobStatus, parseStatus, statusScript } from './job-status.ts';
import type { RunJob } from './run-job-list.ts';
import type { JobsOptions, RunJobs } from './run-jobs.ts';

export class SlurmJobs implements RunJobs {
  readonly #options: JobsOptions;
  #host: Host;
  #chosen: ChosenPool | undefined;

  constructor(options: JobsOptions) {
    this.#options = options;
    this.#host = options.host;
  }

  /** Uses another connection from now on. */
  connectedAgain(host: Host): void {
    this.#host = host;
  }

  get #launcher(): Launcher {
    return launcherOn(this.#host.runner, this.#options.site.pools);
  }

  /** Chooses the partition and the time limit of the run's first job. @throws UpError if none fits */
  choose(): ChosenPool {
    this.#chosen = choosePool(this.#options.site, this.#options.wish.pool);
    return this.#chosen;
  }

  /** The partition and the time limit of further jobs: the relay listens for one partition. @throws UpError */
  get chosen(): ChosenPool {
    const { site, wish, run } = this.#options;
    this.#chosen ??= choosePool(site, { ...wish.pool, partition: wish.pool.partition ?? run.value.partition });
    return this.#chosen;
  }

  /** Submits a job and returns its id. @throws UpError */
  async submit(after?: { job: string; minutes: number }): Promise<string> {
    const { run, site, wish, agent, gateway } = this.#options;
    const { pool, time } = this.chosen;
    const submission = planJob({ run: run.value, site, pool, time, wish: wish.engine, agent, gateway, after });
    const [job] = await this.#launcher.submit(submission).catch((error: unknown) => {
      throw submitFailure(error, site, wish.engine.account);
    });
    if (job === undefined) throw new UpError('Slurm returned no id of the job.', 'Run otela up again.');
    return job;
  }

  /** @throws UpError if the host does not answer */
  async list(): Promise<RunJob[]> {
    return listJobs(this.#host, this.#options.run.value);
  }

  /** @throws UpError if the host does not answer */
  async status(job: string): Promise<JobStatus> {
    return parseStatus(job, await this.#host.output(statusScript(job, this.#options.run.value.partition ?? '')));
  }

  async cancel(jobs: readonly string[]): Promise<void> {
    await endJobs(this.#host, this.#options.run.value, jobs);
  }

  /** Lets a job start now that waits for another one. */
  async release(job: string): Promise<void> {
    await this.#host.runner('scontrol', ['update', `JobId=${job}`, 'Dependency=']);
  }

  /** Other partitions in which this many GPUs are idle, as a list for people; empty if there is none. */
  async idleElsewhere(gpus: number): Promise<string> {
    const capacity = (await this.#launcher.capacity().catch(() => undefined)) ?? [];
    const others = capacity.filter(({ pool, idle }) => pool !== this.#options.run.value.partition && idle >= gpus);
    return others.map(({ pool, idle }) => `${pool} (${idle} idle GPUs)`).join(', ');
  }

  failure(job: string, state: string): Promise<UpError> {
    return jobFailure(this.#host, this.#options.run.value, job, state);
  }
}
