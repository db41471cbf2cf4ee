/** The jobs of one run on its host: finds, submits, lists and ends them by Slurm's commands. */
import type { Launcher } from '../../factory/launchers/launcher.ts';
import { type ChosenPool, choosePool, type PoolWish } from '../site/choose-pool.ts';
import type { LoginNode } from '../site/site.ts';
import type { Ssh } from '../ssh/openssh.ts';
import type { StoredRun } from '../state/runs.ts';
import { UpError } from '../up-error.ts';
import { type EngineWish, launcherOn, planJob, runDirectory, runJobName, submitFailure } from './job-plan.ts';
import { type JobStatus, parseStatus, statusScript } from './job-status.ts';
import { jobListScript, parseJobList, type RunJob } from './run-job-list.ts';

/** Number of last lines of a job's output that an error shows. */
const LOG_LINES = 15;

interface RunJobsOptions {
  run: StoredRun;
  site: LoginNode;
  wish: { pool: PoolWish; engine: EngineWish };
  /** Digest of the installed agent. */
  digest: string;
  ssh: Ssh;
}

export class RunJobs {
  readonly #options: RunJobsOptions;
  #ssh: Ssh;
  #chosen: ChosenPool | undefined;

  constructor(options: RunJobsOptions) {
    this.#options = options;
    this.#ssh = options.ssh;
  }

  /** Uses another connection from now on. */
  connectedAgain(ssh: Ssh): void {
    this.#ssh = ssh;
  }

  get #launcher(): Launcher {
    return launcherOn(this.#ssh.runner, this.#options.site.pools);
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
    const { run, site, wish, digest } = this.#options;
    const { pool, time } = this.chosen;
    const submission = planJob({ run: run.value, site, pool, time, wish: wish.engine, digest, after });
    const [job] = await this.#launcher.submit(submission).catch((error: unknown) => {
      throw submitFailure(error, site, wish.engine.account);
    });
    if (job === undefined) throw new UpError('Slurm returned no id of the job.', 'Run otela up again.');
    return job;
  }

  /** @throws UpError if the host does not answer */
  async list(): Promise<RunJob[]> {
    return parseJobList(await this.#ssh.output(jobListScript(runJobName(this.#options.run.value))));
  }

  /** @throws UpError if the host does not answer */
  async status(job: string): Promise<JobStatus> {
    return parseStatus(job, await this.#ssh.output(statusScript(job, this.#options.run.value.partition ?? '')));
  }

  async cancel(jobs: readonly string[]): Promise<void> {
    if (jobs.length > 0) await this.#launcher.cancel(jobs);
  }

  /** Lets a job start now that waits for another one. */
  async release(job: string): Promise<void> {
    await this.#ssh.runner('scontrol', ['update', `JobId=${job}`, 'Dependency=']);
  }

  /** Other partitions in which this many GPUs are idle, as a list for people; empty if there is none. */
  async idleElsewhere(gpus: number): Promise<string> {
    const capacity = (await this.#launcher.capacity().catch(() => undefined)) ?? [];
    const others = capacity.filter(({ pool, idle }) => pool !== this.#options.run.value.partition && idle >= gpus);
    return others.map(({ pool, idle }) => `${pool} (${idle} idle GPUs)`).join(', ');
  }

  /** Explains the end of a job that did not serve. */
  async failure(job: string, state: string): Promise<UpError> {
    const file = `"$HOME"/${runDirectory(this.#options.run.value)}/${job}.log`;
    const tail = (await this.#ssh.output(`tail -n ${LOG_LINES} ${file} 2>/dev/null || true`).catch(() => '')).trim();
    const happened = `The job ${job} ended before the model answered (${state}).${tail === '' ? '' : ` Its last lines:\n${tail}`}`;
    if (state.startsWith('OUT_OF_ME') || /out of memory/i.test(tail))
      return new UpError(
        happened,
        'The model needs more memory: give --gpus 2, or --engine-argument=--max-model-len=8192.',
      );
    return new UpError(happened, 'Correct what the lines say, then run otela up again. otela logs shows all lines.');
  }
}
