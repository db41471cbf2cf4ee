/** Decides which files of the long form still run, so that a run with a time limit ends in time. */
import { isShort } from '../tiers.ts';
import type { Job } from './jobs.ts';

/** Jobs beside each other take at least this many times longer than the table of durations says. */
const STRETCH_LEAST = 2;
/** Durations of shorter jobs consist mostly of the start of vitest, so they say little about the others. */
const TELLING_SECONDS = 20;

const sum = (job: Job, files: readonly string[]) => files.reduce((seconds, file) => seconds + job.secondsOf(file), 0);
const shortFiles = (job: Job) => job.files.filter((file) => isShort(job.part, file));

export class TimeLeft {
  readonly #endS: number;
  readonly #lanes: number;
  readonly #leastStretch: number;
  #wall = 0;
  #expected = 0;
  /** Of the jobs that run, by the table. */
  #runningSeconds = 0;

  /**
   * `endS`: the second of the run at which all tests shall have ended; infinite: no limit. `lanes`: jobs at a time.
   * `slowness`: how many times slower this machine is than that of the table.
   */
  constructor(endS: number, lanes: number, slowness: number) {
    this.#endS = endS;
    this.#lanes = lanes;
    this.#leastStretch = STRETCH_LEAST * slowness;
  }

  /**
   * The files of a job that begins at second `nowS`: all short ones, and long ones if they will end in time and leave
   * time for the short ones of `waiting` jobs. The caller says later that it `ended`.
   */
  begin(job: Job, nowS: number, waiting: readonly Job[]): string[] {
    const stretch = Math.max(this.#leastStretch, this.#expected === 0 ? 0 : this.#wall / this.#expected);
    const timeS = Math.max(0, this.#endS - nowS) / stretch;
    // A running job has half of its time before it, on average.
    const othersS = waiting.reduce((all, other) => all + sum(other, shortFiles(other)), this.#runningSeconds / 2);
    const short = new Set(shortFiles(job));
    let left = Math.min(timeS, this.#lanes * timeS - othersS) - sum(job, [...short]);
    const files = job.files.filter((file) => {
      if (short.has(file)) return true;
      if (job.secondsOf(file) > left) return false;
      left -= job.secondsOf(file);
      return true;
    });
    this.#runningSeconds += sum(job, files);
    return files;
  }

  /** Says that these files, with which the job began, took `wall` seconds. */
  ended(job: Job, files: readonly string[], wall: number): void {
    const expected = sum(job, files);
    this.#runningSeconds -= expected;
    if (expected < TELLING_SECONDS) return;
    this.#wall += wall;
    this.#expected += expected;
  }
}
