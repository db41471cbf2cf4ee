/**
 * vitest's reporter for every run. The first line of a failure says what broke; the second is a command that runs only
 * this test. It lists skipped tests and known failures with their reasons. If `npm test` asks for it, it also writes
 * its results to a file.
 */
import { writeFileSync } from 'node:fs';
import { relative } from 'node:path';
import type { Reporter, SerializedError, TestCase, TestModule } from 'vitest/node';
import { ROOT } from './where.ts';

/** Path of the file with a RunReport. */
export const REPORT_VARIABLE = 'OTELA_TEST_REPORT';
/** Characters of a message in one line. */
const MESSAGE_CHARS = 200;

export interface Failure {
  /** Path from the root; absent: the run failed outside any file. */
  file?: string;
  /** The test's name after those of its `describe`s. Absent if the file itself failed, for example to load. */
  test?: string;
  /** The failure in one line. */
  message: string;
  /** A shell command that runs only this test again. */
  again?: string;
}

export interface FileReport {
  /** Path from the root. */
  file: string;
  seconds: number;
  /** CPU seconds of the file; absent in Cloudflare's runtime. */
  cpuSeconds?: number;
}

export interface RunReport {
  passed: number;
  skipped: number;
  failures: Failure[];
  files: FileReport[];
}

/** The line of Playwright's call log, below the message, that names the element. */
const WAITING = /^\s*- (waiting for .+)$/m;

/** The first line of the message, the element that Playwright waits for, and the line of the test file. */
function firstLine(errors: readonly SerializedError[], file?: string): string {
  const [error] = errors;
  const message: string = error?.message ?? 'failed';
  const waiting = WAITING.exec(message)?.[1];
  const line = error?.stacks?.find((frame) => file !== undefined && frame.file.endsWith(file))?.line;
  return [
    message.split('\n', 1).join().slice(0, MESSAGE_CHARS),
    ...(waiting === undefined ? [] : [` ${waiting.slice(0, MESSAGE_CHARS)}`]),
    ...(line === undefined ? [] : [` (line ${line})`]),
  ].join('');
}

/** Returns the pattern for vitest's `-t`, which is a regular expression over the names joined by ` > `. */
export const testPattern = (names: string) => names.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&');

/** The command that runs only this test. */
function again(project: string, file: string, names?: string): string {
  const host = process.env.OTELA_TEST_HOST === undefined ? '' : `OTELA_TEST_HOST=${process.env.OTELA_TEST_HOST} `;
  const pattern = names === undefined ? undefined : testPattern(names).replaceAll("'", "'\\''");
  return `${host}npx vitest run --project ${project} ${file}${pattern === undefined ? '' : ` -t '${pattern}'`}`;
}

export function failureLines({ file, test, message, again }: Failure): string {
  const where = [file, test].filter((part) => part !== undefined).join(' > ');
  return `failed: ${where || 'the run'}: ${message}${again === undefined ? '' : `\n  again: ${again}`}`;
}

/** The test's name, after those of its enclosing `describe`s. */
function namesOf(test: TestCase): string[] {
  const names = [test.name];
  for (let at = test.parent; at.type === 'suite'; at = at.parent) names.unshift(at.name);
  return names;
}

function failuresOf(module: TestModule): Failure[] {
  const file = relative(ROOT, module.moduleId);
  const project = module.project.name;
  const tests: Failure[] = [...module.children.allTests('failed')].map((test) => ({
    file,
    test: test.fullName,
    message: firstLine(test.result().errors ?? [], file),
    again: again(project, file, namesOf(test).join(' > ')),
  }));
  // A file that cannot be loaded has no tests; hooks may fail even if all tests pass.
  const own = [module, ...module.children.allSuites()].map((suite) => suite.errors()).find(({ length }) => length > 0);
  if (own === undefined && (tests.length > 0 || module.state() !== 'failed')) return tests;
  return [...tests, { file, message: firstLine(own ?? [], file), again: again(project, file) }];
}

function tellSkipped(module: TestModule): void {
  const file = relative(ROOT, module.moduleId);
  for (const test of module.children.allTests('skipped')) {
    const result = test.result();
    const reason = result.state === 'skipped' && result.note !== undefined ? `: ${result.note}` : '';
    console.log(`skipped: ${file} > ${test.fullName}${reason}`);
  }
  for (const test of module.children.allTests('passed')) {
    const { knownFailing } = test.meta();
    if (typeof knownFailing === 'string') console.log(`known failing: ${file} > ${test.fullName}: ${knownFailing}`);
  }
}

export default class RunReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], errors: readonly SerializedError[]): void {
    const count = (state: 'passed' | 'skipped') =>
      modules.reduce((sum, { children }) => sum + [...children.allTests(state)].length, 0);
    const report: RunReport = {
      passed: count('passed'),
      skipped: count('skipped'),
      failures: [...modules.flatMap(failuresOf), ...errors.map((error) => ({ message: firstLine([error]) }))],
      files: modules.map((module) => {
        const { cpuSeconds } = module.meta();
        return {
          file: relative(ROOT, module.moduleId),
          seconds: module.diagnostic().duration / 1_000,
          ...(cpuSeconds === undefined ? {} : { cpuSeconds }),
        };
      }),
    };
    for (const failure of report.failures) console.log(failureLines(failure));
    // A run of some tests by name skips all others, and vitest reports that itself.
    if (process.argv.every((word) => word !== '-t')) modules.forEach(tellSkipped);
    const path = process.env[REPORT_VARIABLE];
    if (path !== undefined) writeFileSync(path, JSON.stringify(report));
  }
}
