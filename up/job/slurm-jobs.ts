/** The jobs of one run by Slurm's commands. */
import type { Launcher } from '../../factory/launchers/launcher.ts';
import type { Host } from '../host/host.ts';
import { type ChosenPool, choosePool } from '../site/choose-pool.ts';
import { UpError } from '../up-error.ts';
import { endJobs, listJobs } from './end-jobs.ts';
import { jobFailure } from './job-failure.ts';
import { launcherOn, planJob, submitFailure, triedSettings } from './job-plan.ts';
import { type JobStatus, parseStatus, statusScript } from './job-status.ts';
import { type PartitionStart, parseStarts, startsScript } from './partition-starts.ts';
import type { RunJob } from './run-job-list.ts';
import type { JobsOptions, RunJobs } from './run-jobs.ts';
import { smallerSettings } from './smaller-settings.ts';

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

  /** When the job would start in other partitions. */
  async startsElsewhere(): Promise<PartitionStart[]> {
    const { run, site, wish } = this.#options;
    const { account } = wish.engine;
    const tested = {
      partition: run.value.partition,
      pools: site.pools,
      wish: wish.pool,
      account,
      time: this.chosen.time,
    };
    const script = startsScript(tested);
    return script === undefined ? [] : parseStarts(await this.#host.output(script));
  }

  failure(job: string, state: string): Promise<UpError> {
    const smaller = (said: string) => smallerSettings(triedSettings(this.#options, this.chosen.pool.gpusPerNode), said);
    return jobFailure(this.#host, { run: this.#options.run.value, job, state, smaller });
  }
}
