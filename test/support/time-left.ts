/** Decides which files of the long form still run, so that a run with a time limit ends in time. */
import type { Job } from './jobs.ts';

/** Jobs beside each other take at least this many times longer than the table of durations says. */
const STRETCH_LEAST = 2;
/** Durations of shorter jobs consist mostly of the start of vitest, so they say little about the others. */
const TELLING_SECONDS = 20;

export class TimeLeft {
  readonly #endS: number;
  #wall = 0;
  #expected = 0;

  /** `endS`: the second of the run at which all tests shall have ended; infinite: no limit. */
  constructor(endS: number) {
    this.#endS = endS;
  }

  /** Records that `files`, which take `expected` seconds by the table, took `wall` seconds. */
  ended(expected: number, wall: number): void {
    if (expected < TELLING_SECONDS) return;
    this.#wall += wall;
    this.#expected += expected;
  }

  /** The files of a job that begins at second `nowS`: all short ones, and the long ones that will end in time. */
  filesOf(job: Job, nowS: number, isShort: (file: string) => boolean): string[] {
    const stretch = Math.max(STRETCH_LEAST, this.#expected === 0 ? 0 : this.#wall / this.#expected);
    let left = (this.#endS - nowS) / stretch;
    const short = job.files.filter(isShort);
    for (const file of short) left -= job.secondsOf(file);
    const long = job.files.filter((file) => {
      if (isShort(file) || job.secondsOf(file) > left) return false;
      left -= job.secondsOf(file);
      return true;
    });
    const kept = new Set([...short, ...long]);
    return job.files.filter((file) => kept.has(file));
  }
}
