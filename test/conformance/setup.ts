/** Before each test of the suite: what its host is known not to do must fail. */
import { relative } from 'node:path';
import { beforeEach } from 'vitest';
import { HOST } from '../support/host.ts';
import { ROOT } from '../support/where.ts';
import { knownFailure } from './known-failures.ts';

declare module 'vitest' {
  interface TaskMeta {
    /** Why the host under test is known to fail here. */
    knownFailing?: string;
  }
}

beforeEach(({ task }) => {
  const names: string[] = [];
  for (let at = task.suite; at !== undefined; at = at.suite) names.unshift(at.name);
  const name = [...names, task.name].filter((one) => one !== '').join(' > ');
  const known = knownFailure(HOST.name, relative(`${ROOT}/test/conformance`, task.file.filepath), name);
  if (known === undefined) return;
  task.meta.knownFailing = known.reason;
  // As `test.fails` would have it: passing is the failure. The runner reads it when the test is over.
  Object.assign(task, { fails: true });
});
