/** Before each test of the suite: a known failure of its host must fail, and each entry must still name a test. */
import { relative } from 'node:path';
import { beforeEach, type RunnerTask, type RunnerTestFile } from 'vitest';
import { HOST } from '../support/host.ts';
import { ROOT } from '../support/where.ts';
import { KNOWN_FAILURES, knownFailure } from './known-failures.ts';

declare module 'vitest' {
  interface TaskMeta {
    /** Why the host under test is known to fail here. */
    knownFailing?: string;
  }
}

const pathOf = (file: RunnerTestFile) => relative(`${ROOT}/test/conformance`, file.filepath);

function nameOf(task: RunnerTask): string {
  const names = [task.name];
  for (let at = task.suite; at !== undefined; at = at.suite) names.unshift(at.name);
  return names.filter((one) => one !== '').join(' > ');
}

const testsOf = (task: RunnerTask): RunnerTask[] => (task.type === 'suite' ? task.tasks.flatMap(testsOf) : [task]);

/**
 * @throws Error if a line names no test of the file: a renamed test would be expected to pass, and its line would stay
 * forever
 */
function requireKnown(file: RunnerTestFile): void {
  const names = new Set(testsOf(file).map(nameOf));
  const gone = KNOWN_FAILURES.filter((one) => one.file === pathOf(file)).flatMap(({ tests }) =>
    tests.filter((test) => !names.has(test)),
  );
  if (gone.length > 0) throw new Error(`known-failures.ts names what is no test: ${gone.join('; ')}`);
}

beforeEach(({ task }) => {
  requireKnown(task.file);
  const known = knownFailure(HOST.name, pathOf(task.file), nameOf(task));
  if (known === undefined) return;
  task.meta.knownFailing = known.reason;
  // Like `test.fails`: passing is the failure. The runner reads it when the test is over.
  Object.assign(task, { fails: true });
});
