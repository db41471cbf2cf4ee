/** The results of a run of tests, and its cost. */
import { endedChildrenSeconds } from './ended-children.ts';
import type { Failure, FileReport } from './reporter.ts';
import type { Outcome } from './vitest-run.ts';

/** Number of the most expensive files that are listed. */
const DEAREST = 20;
/**
 * Maximum CPU seconds of the whole short form, with its checks and the build, on a machine of 2026. A more expensive
 * run exits with 1, unless `--no-budget` or `--ci` is given.
 */
const BUDGET_CPU_SECONDS = 1_300;

const seconds = (value: number) => `${value.toFixed(0).padStart(5)} s`;
const row = (name: string, wall: number | undefined, cpu: number | undefined) =>
  `  ${wall === undefined ? ' '.repeat(7) : seconds(wall)} ${cpu === undefined ? ' '.repeat(7) : seconds(cpu)}  ${name}`;

/** Combines the outcomes of a part that had several runs. */
export function together(outcomes: readonly Outcome[]): Outcome {
  const total = (of: (outcome: Outcome) => number) => outcomes.reduce((all, outcome) => all + of(outcome), 0);
  return {
    passed: total(({ passed }) => passed),
    skipped: total(({ skipped }) => skipped),
    failures: outcomes.flatMap(({ failures }) => failures),
    files: outcomes.flatMap(({ files }) => files),
    wallSeconds: total(({ wallSeconds }) => wallSeconds),
    cpuSeconds: total(({ cpuSeconds }) => cpuSeconds),
  };
}

const nameOf = ({ file, test }: Failure) => [file, test].filter((part) => part !== undefined).join(' > ');

export class TestTally {
  passed = 0;
  skipped = 0;
  /** Tests that passed only at the second try. */
  readonly flaky: { test: string; message: string }[] = [];
  /** Tests that failed at the last try. */
  readonly failures: Failure[] = [];
  readonly #files: FileReport[] = [];
  readonly #rows: string[] = [];
  readonly #leftOut: string[] = [];
  readonly #startedAt = performance.now();
  #checksSeconds = 0;

  /** Adds all runs of one part, and its second try, if there was one. */
  add(part: string, first: Outcome, second: Outcome | undefined): void {
    this.#rows.push(row(part, first.wallSeconds, first.cpuSeconds + (second?.cpuSeconds ?? 0)));
    const failures = second?.failures ?? first.failures;
    const failed = new Set(failures.map(nameOf));
    const flaky = second === undefined ? [] : first.failures.filter((failure) => !failed.has(nameOf(failure)));
    this.flaky.push(...flaky.map((failure) => ({ test: nameOf(failure), message: failure.message })));
    // A test that passed at the first try and failed at the second counts as failed, so that the sum stays the number
    // of tests that ran.
    this.passed += first.passed + first.failures.length - failures.length;
    this.skipped += first.skipped;
    this.failures.push(...failures);
    this.#files.push(...first.files);
  }

  /** `again`: the command that failed; undefined: it passed. */
  check(name: string, again: string | undefined, cpuSeconds: number): void {
    this.#checksSeconds += cpuSeconds;
    if (again === undefined) this.passed++;
    else this.failures.push({ message: `the check ${name}`, again: `npx ${again}` });
  }

  spent(name: string, cpuSeconds: number): void {
    this.#rows.push(row(name, undefined, cpuSeconds));
  }

  /** Records a part that this machine cannot run. */
  cannotRun(part: string): void {
    this.skipped++;
    this.#rows.push(row(`${part}, skipped`, undefined, undefined));
  }

  /** Records files that would not end in time. */
  leaveOut(files: readonly string[]): void {
    this.skipped += files.length;
    this.#leftOut.push(...files);
  }

  isOverBudget(): boolean {
    if (endedChildrenSeconds() <= BUDGET_CPU_SECONDS) return false;
    console.log(
      `\nTOO DEAR: the short form may cost ${BUDGET_CPU_SECONDS} CPU seconds. Make its dearest files cheaper, or list them in test/tiers.ts.`,
    );
    return true;
  }

  /** Lists the CPU time and the wall time of files and parts; wall time includes waiting. */
  told(): string {
    const dearest = this.#files
      .filter(({ cpuSeconds }) => cpuSeconds !== undefined)
      .toSorted((a, b) => (b.cpuSeconds ?? 0) - (a.cpuSeconds ?? 0))
      .slice(0, DEAREST);
    const slowest = this.#files.toSorted((a, b) => b.seconds - a.seconds).slice(0, DEAREST);
    const files = (some: readonly FileReport[]) => some.map((one) => row(one.file, one.seconds, one.cpuSeconds));
    const wall = (performance.now() - this.#startedAt) / 1_000;
    return [
      'Seconds, and of CPU time, of the dearest files:',
      ...files(dearest),
      'of the slowest:',
      ...files(slowest),
      'of the parts, which go side by side:',
      row('checks', undefined, this.#checksSeconds),
      ...this.#rows,
      'of all:',
      row('', wall, endedChildrenSeconds()),
      ...this.#leftOut.map((file) => `skipped, because it would not have ended in time: ${file}`),
    ].join('\n');
  }
}
