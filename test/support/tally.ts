/** What a run of tests came to, and what it cost. */
import { endedChildrenSeconds } from './ended-children.ts';
import type { Failure, FileReport } from './reporter.ts';
import type { Outcome } from './vitest-run.ts';

/** Files that are named with what they cost. */
const DEAREST = 20;
/** Of the whole short form with its checks and the build, on a machine of 2026. A slower one is told, and not failed for it. */
const BUDGET_CPU_SECONDS = 1_300;

const seconds = (value: number) => `${value.toFixed(0).padStart(5)} s`;
const row = (name: string, wall: number | undefined, cpu: number | undefined) =>
  `  ${wall === undefined ? ' '.repeat(7) : seconds(wall)} ${cpu === undefined ? ' '.repeat(7) : seconds(cpu)}  ${name}`;

/** Of a part whose files were several runs. */
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
  /** What passed at the second try only. */
  readonly flaky: { test: string; message: string }[] = [];
  /** What failed at the last. */
  readonly failures: Failure[] = [];
  readonly #files: FileReport[] = [];
  readonly #rows: string[] = [];
  readonly #startedAt = performance.now();
  #checksSeconds = 0;
  #unable = 0;

  /** All of one part, and what its second try gave, if there was one. */
  add(part: string, first: Outcome, second: Outcome | undefined): void {
    this.#rows.push(row(part, first.wallSeconds, first.cpuSeconds + (second?.cpuSeconds ?? 0)));
    const failures = second?.failures ?? first.failures;
    const failed = new Set(failures.map(nameOf));
    const flaky = second === undefined ? [] : first.failures.filter((failure) => !failed.has(nameOf(failure)));
    this.flaky.push(...flaky.map((failure) => ({ test: nameOf(failure), message: failure.message })));
    // A test that passed at first and fails now is one that fails: the sum stays that of the tests that ran.
    this.passed += first.passed + first.failures.length - failures.length;
    this.skipped += first.skipped;
    this.failures.push(...failures);
    this.#files.push(...first.files);
  }

  /** `again`: the command that failed. */
  check(name: string, again: string | undefined, cpuSeconds: number): void {
    this.#checksSeconds += cpuSeconds;
    if (again === undefined) this.passed++;
    else this.failures.push({ message: `the check ${name}`, again: `npx ${again}` });
  }

  spent(name: string, cpuSeconds: number): void {
    this.#rows.push(row(name, undefined, cpuSeconds));
  }

  /** A part that this machine lacks something for. */
  cannotRun(part: string): void {
    this.skipped++;
    this.#unable++;
    this.#rows.push(row(`${part}, skipped`, undefined, undefined));
  }

  /** Everything ran, and passed at once. */
  isClean(): boolean {
    return this.failures.length === 0 && this.flaky.length === 0 && this.#unable === 0;
  }

  isOverBudget(): boolean {
    if (endedChildrenSeconds() <= BUDGET_CPU_SECONDS) return false;
    console.log(
      `\nTOO DEAR: the short form may cost ${BUDGET_CPU_SECONDS} CPU seconds. Make its dearest files cheaper, or list them in test/tiers.ts.`,
    );
    return true;
  }

  /** Where the time goes: what is work, and what is waiting beside others. */
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
    ].join('\n');
  }
}
