/** When the job ends, kept up to date, and when it is time to drain for it. */
import { setTimeout as delay } from 'node:timers/promises';
import type { RunTool } from './run-tool.ts';
import { askEndTime, environmentEndTime, type SlurmJob } from './slurm.ts';

interface JobEndOptions {
  job: SlurmJob;
  env: Readonly<Record<string, string | undefined>>;
  run: RunTool;
  /** How long before the end `onDue` is called; 0 never. Asked once, with the time left at the start. */
  before(leftMs: number): number;
  onChange(ends: Date | undefined): void;
  onDue(leftMs: number): void;
  log(line: string): void;
  /** Wall clock, milliseconds since 1970: the end is a time of day. */
  now(): number;
  /** 0 ≤ x < 1. */
  random(): number;
}

/** Limits change by hand, a few times a day; slurmctld serves the whole site. */
const REREAD_MS = 300_000;

export class JobEnd {
  readonly #options: JobEndOptions;
  readonly #stop = new AbortController();
  #ends: Date | undefined;
  #beforeMs: number | undefined;
  #complained = false;

  constructor(options: JobEndOptions) {
    this.#options = options;
    this.#ends = environmentEndTime(options.env);
  }

  get ends(): Date | undefined {
    return this.#ends;
  }

  /** Runs until `close`; never rejects. */
  async open(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      await this.#ask();
      if (signal.aborted) return;
      const leftMs = this.#ends === undefined ? Number.POSITIVE_INFINITY : this.#ends.getTime() - this.#options.now();
      if (this.#ends) this.#beforeMs ??= this.#options.before(leftMs);
      const dueMs = this.#beforeMs ? leftMs - this.#beforeMs : Number.POSITIVE_INFINITY;
      // Due is decided on what slurmctld has just said: the limit may have been raised meanwhile.
      if (dueMs <= 0) return this.#options.onDue(leftMs);
      const rereadMs = REREAD_MS * (0.8 + 0.4 * this.#options.random());
      await delay(Math.min(rereadMs, dueMs), undefined, { signal }).catch(() => {});
    }
  }

  close(): void {
    this.#stop.abort();
  }

  async #ask(): Promise<void> {
    const answer = await askEndTime(this.#options.job, this.#options.run);
    if (answer.kind === 'unknown') {
      if (!this.#complained) this.#options.log(`the job's end cannot be learnt now: ${answer.reason}`);
      this.#complained = true;
      return;
    }
    this.#complained = false;
    if (answer.ends?.getTime() === this.#ends?.getTime()) return;
    this.#ends = answer.ends;
    this.#options.onChange(answer.ends);
  }
}
