/** The batch job of this agent, if there is one: its part of the registry record, and the time that is left. */

import type { BatchJob, JobFate } from '../../node/batch-systems/batch-job.ts';
import { detectBatchJob } from '../../node/batch-systems/detect.ts';
import type { NodePayload } from '../../shared/lattice/node-payload.ts';
import { neverRejects } from '../../shared/timing/in-background.ts';
import type { Env } from '../config/setting.ts';
import type { StartConfig } from '../config/start-config.ts';
import { JobEnd } from '../host/job-end.ts';
import type { RunTool } from '../host/run-tool.ts';
import { type DrainCause, type DrainPlan, drainBefore, drainPlan, drainReason } from './drain-plan.ts';
import type { SignalWarning } from './ending/ending-state.ts';

interface JobOptions {
  config: Pick<StartConfig, 'drainBeforeMs' | 'drainTimeoutMs' | 'endsAt'>;
  env: Env;
  run: RunTool;
  /** Called when the job's part of the record has changed. */
  onChange(): void;
  /** Called when it is time to drain, because the job ends in `leftMs`. */
  onDue(leftMs: number): void;
  log(line: string): void;
}

/** The job's id in the record if there is no job and the operator's setting gives the end. */
const NO_JOB = '-';

/**
 * Maximum wait for the batch system. slurmctld answers within a second, and requests need most of the time that is
 * left.
 */
const JOB_FATE_WAIT_MS = 2_000;

export class JobWatch {
  readonly #options: JobOptions;
  readonly #batch: BatchJob | undefined;
  #end: JobEnd | undefined;
  #killWaitMs: number | undefined;
  #fate: Promise<JobFate | undefined> | undefined;

  constructor(options: JobOptions) {
    this.#options = options;
    this.#batch = detectBatchJob(options.env);
  }

  /** Batch system and id, for display; undefined outside a job. */
  get name(): string | undefined {
    return this.#batch && `${this.#batch.system} job ${this.#batch.id}`;
  }

  get id(): string | undefined {
    return this.#batch?.id;
  }

  /** The name by which the batch system knows this machine. */
  get node(): string | undefined {
    return this.#batch?.node;
  }

  get ends(): Date | undefined {
    return this.#end?.ends;
  }

  open(): void {
    const { config, run, onChange, onDue, log } = this.#options;
    neverRejects(
      this.#batch?.killWaitMs(run).then((ms) => {
        this.#killWaitMs = ms;
      }),
    );
    // The operator's setting takes precedence over the batch system.
    const job = config.endsAt === undefined ? this.#batch : { ends: config.endsAt };
    if (job === undefined) return;
    this.#end = new JobEnd({
      job,
      run,
      before: (leftMs) => drainBefore(config.drainBeforeMs, leftMs),
      onChange,
      onDue,
      log,
      now: () => Date.now(),
      random: Math.random,
    });
    neverRejects(this.#end.open());
  }

  record(): Pick<NodePayload, 'job'> {
    const { ends } = this;
    if (this.#batch === undefined && ends === undefined) return {};
    const { id, node, partition } = this.#batch ?? {};
    return {
      job: {
        id: id ?? NO_JOB,
        ...(node ? { node } : {}),
        ...(partition ? { partition } : {}),
        ...(ends ? { ends_at: ends.toISOString() } : {}),
      },
    };
  }

  /** Why the node ends, for the registry. @param signal name of the signal, if there was one */
  drainReason(cause: DrainCause, signal: string): string {
    return drainReason(cause, signal, this.#leftMs);
  }

  /**
   * How the batch system is ending the job; asked once. Undefined if nothing ends the job, or if no answer arrives in
   * time.
   */
  fate(): Promise<JobFate | undefined> {
    this.#fate ??= new Promise((resolve) => {
      setTimeout(resolve, JOB_FATE_WAIT_MS, undefined).unref();
      this.#batch?.askFate(this.#options.run).then(resolve, () => resolve(undefined));
      if (this.#batch === undefined) resolve(undefined);
    });
    return this.#fate;
  }

  /**
   * What a SIGTERM means: a warning, if the batch system reports that the job continues. Undefined if SIGTERM ends the
   * job, or if the batch system gives no answer in time.
   */
  async warning(): Promise<SignalWarning | undefined> {
    const asked = this.#batch?.askRunsUntil?.(this.#options.run).catch(() => undefined);
    if (asked === undefined) return undefined;
    const late = new Promise<undefined>((resolve) => void setTimeout(resolve, JOB_FATE_WAIT_MS, undefined).unref());
    const until = await Promise.race([asked, late]);
    if (until === undefined) return undefined;
    const leftMs = until.getTime() - Date.now();
    // A job that is preempted with a grace time also continues, until its new end. The preemption is then the reason.
    const reason = (await this.fate()) ?? drainReason('warning', 'SIGTERM', leftMs);
    return { plan: this.#planFor('warning', leftMs), reason };
  }

  get #leftMs(): number | undefined {
    return this.ends ? this.ends.getTime() - Date.now() : undefined;
  }

  plan(cause: DrainCause): DrainPlan {
    return this.#planFor(cause, this.#leftMs);
  }

  #planFor(cause: DrainCause, leftMs: number | undefined): DrainPlan {
    const { drainTimeoutMs: timeoutMs } = this.#options.config;
    return drainPlan({ cause, timeoutMs, killWaitMs: this.#killWaitMs, leftMs });
  }

  close(): void {
    this.#end?.close();
  }
}
