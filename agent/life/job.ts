/** The Slurm job that this agent lives in, if any: what the record tells of it, and how much time it leaves. */
import type { NodePayload } from '../../shared/lattice/payload.ts';
import type { Env } from '../config/sources.ts';
import type { StartConfig } from '../config/start-config.ts';
import { JobEnd } from '../host/job-end.ts';
import type { RunTool } from '../host/run-tool.ts';
import { killWaitMs, type SlurmJob, slurmJob } from '../host/slurm.ts';
import { type DrainCause, type DrainPlan, drainBefore, drainPlan, drainReason } from './drain-plan.ts';

export interface JobOptions {
  config: Pick<StartConfig, 'drainBeforeMs' | 'drainTimeoutMs'>;
  env: Env;
  run: RunTool;
  /** The record of it is another now. */
  onChange(): void;
  /** It is time to drain for its end, which is so far away. */
  onDue(leftMs: number): void;
  log(line: string): void;
}

export class Job {
  readonly #options: JobOptions;
  readonly #slurm: SlurmJob | undefined;
  #end: JobEnd | undefined;
  #killWaitMs: number | undefined;

  constructor(options: JobOptions) {
    this.#options = options;
    this.#slurm = slurmJob(options.env);
  }

  get id(): string | undefined {
    return this.#slurm?.id;
  }

  /** Slurm's name of this node. */
  get node(): string | undefined {
    return this.#slurm?.node;
  }

  get ends(): Date | undefined {
    return this.#end?.ends;
  }

  open(): void {
    const { config, env, run, onChange, onDue, log } = this.#options;
    if (!this.#slurm) return;
    void killWaitMs(run).then((ms) => {
      this.#killWaitMs = ms;
    });
    this.#end = new JobEnd({
      job: this.#slurm,
      env,
      run,
      before: (leftMs) => drainBefore(config.drainBeforeMs, leftMs),
      onChange,
      onDue,
      log,
      now: () => Date.now(),
      random: Math.random,
    });
    void this.#end.open();
  }

  record(): Pick<NodePayload, 'job'> {
    if (!this.#slurm) return {};
    const { id, node, partition } = this.#slurm;
    const { ends } = this;
    return {
      job: {
        id,
        ...(node ? { node } : {}),
        ...(partition ? { partition } : {}),
        ...(ends ? { ends_at: ends.toISOString() } : {}),
      },
    };
  }

  /** Why the node goes, for the registry. `signal`: the name of the one that came, if one did. */
  drainReason(cause: DrainCause, signal: string): string {
    return drainReason(cause, signal, this.#leftMs);
  }

  get #leftMs(): number | undefined {
    return this.ends ? this.ends.getTime() - Date.now() : undefined;
  }

  plan(cause: DrainCause): DrainPlan {
    return drainPlan({
      cause,
      timeoutMs: this.#options.config.drainTimeoutMs,
      killWaitMs: this.#slurm ? this.#killWaitMs : undefined,
      leftMs: this.#leftMs,
    });
  }

  close(): void {
    this.#end?.close();
  }
}
