/** Watches when the job ends, and reports when it is time to drain. */
import { setTimeout as delay } from 'node:timers/promises';
import type { BatchJob } from '../../node/batch-systems/batch-job.ts';
import type { RunTool } from './run-tool.ts';

interface JobEndOptions {
  job: Pick<BatchJob, 'ends' | 'askEnd'>;
  run: RunTool;
  /**
   * Milliseconds before the end at which `onDue` is called; 0 means never.
   * @param leftMs time left when the agent started
   */
  before(leftMs: number): number;
  onChange(ends: Date | undefined): void;
  onDue(leftMs: number): void;
  log(line: string): void;
  /** Milliseconds since 1970 by the wall clock, because the job's end is a time of day. */
  now(): number;
  /** A random number x with 0 ≤ x < 1. */
  random(): number;
}

/**
 * How often the batch system is asked. People change limits a few times a day, and one slurmctld serves the whole site.
 */
const REREAD_MS = 300_000;

/**
 * Timeout of a query of the batch system. squeue answers within a second unless slurmctld is in trouble. The last query
 * begins this long before the drain is due, so its answer can still postpone the drain.
 */
const ANSWER_MS = 2_000;

export class JobEnd {
  readonly #options: JobEndOptions;
  readonly #stop = new AbortController();
  readonly #startedAt: number;
  #ends: Date | undefined;
  #beforeMs: number | undefined;
  #reading: Promise<void> | undefined;
  #reportedFailure = false;

  constructor(options: JobEndOptions) {
    this.#options = options;
    this.#startedAt = options.now();
    this.#ends = options.job.ends;
  }

  get ends(): Date | undefined {
    return this.#ends;
  }

  /** Runs until `close`; never rejects. */
  async open(): Promise<void> {
    const { signal } = this.#stop;
    for (let near = false; !signal.aborted; ) {
      await this.#answer();
      if (signal.aborted) return;
      if (near && this.#dueMs <= ANSWER_MS) await pause(this.#dueMs, signal);
      if (signal.aborted) return;
      const dueMs = this.#dueMs;
      if (dueMs <= 0) return this.#options.onDue(this.#leftMs);
      // Asks once more shortly before the drain, because the limit may have been raised meanwhile.
      near = dueMs <= ANSWER_MS;
      const rereadMs = REREAD_MS * (0.8 + 0.4 * this.#options.random());
      await pause(Math.min(rereadMs, near ? dueMs / 2 : dueMs - ANSWER_MS), signal);
    }
  }

  close(): void {
    this.#stop.abort();
  }

  get #leftMs(): number {
    return this.#ends === undefined ? Number.POSITIVE_INFINITY : this.#ends.getTime() - this.#options.now();
  }

  /** Milliseconds until the drain is due. */
  get #dueMs(): number {
    if (this.#ends === undefined) return Number.POSITIVE_INFINITY;
    const beforeMs = this.#beforeMs ?? this.#options.before(this.#ends.getTime() - this.#startedAt);
    return beforeMs > 0 ? this.#leftMs - beforeMs : Number.POSITIVE_INFINITY;
  }

  /**
   * Resolves when the batch system has answered. Also resolves when the agent must act without an answer, because a
   * batch system that hangs could answer only after the job's end.
   */
  async #answer(): Promise<void> {
    const answered = new AbortController();
    this.#reading ??= this.#ask().finally(() => {
      this.#reading = undefined;
    });
    const next = pause(this.#pauseMs, AbortSignal.any([this.#stop.signal, answered.signal]));
    await Promise.race([this.#reading, next]);
    answered.abort();
  }

  get #pauseMs(): number {
    // If the limit was raised before the agent started, the end from the environment lies in the past. Only the batch
    // system knows the real end.
    if (this.#ends === undefined || this.#ends.getTime() <= this.#startedAt) return REREAD_MS;
    // If the drain is already due when the agent starts, the first query may still take up to half of the job's
    // remaining time.
    const chanceMs = Math.min(ANSWER_MS, this.#leftMs / 2) - (this.#options.now() - this.#startedAt);
    return Math.min(REREAD_MS, Math.max(this.#dueMs, chanceMs));
  }

  async #ask(): Promise<void> {
    const { job, run } = this.#options;
    const answer = (await job.askEnd?.(run)) ?? ({ kind: 'known', ends: this.#ends } as const);
    if (answer.kind === 'unknown') {
      if (!this.#reportedFailure) this.#options.log(`the job's end time is unknown: ${answer.reason}`);
      this.#reportedFailure = true;
    } else {
      this.#reportedFailure = false;
      if (answer.ends?.getTime() !== this.#ends?.getTime()) {
        this.#ends = answer.ends;
        this.#options.onChange(answer.ends);
      }
    }
    // The length of the drain is computed once, so that a limit that is raised later does not change it. An end in the
    // past is ignored.
    const hadMs = this.#ends === undefined ? 0 : this.#ends.getTime() - this.#startedAt;
    if (hadMs > 0) this.#beforeMs ??= this.#options.before(hadMs);
  }
}

/** Resolves immediately if `signal` is aborted. Never rejects. */
function pause(ms: number, signal: AbortSignal): Promise<void> {
  return delay(Math.max(0, ms), undefined, { signal }).catch(() => {});
}
