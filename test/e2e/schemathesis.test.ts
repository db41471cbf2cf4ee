/**
 * The API against its own description, in two roles. `OTELA_SCHEMATHESIS=long`: in three roles, all phases, ten times
 * as many cases.
 */
import { afterAll, beforeAll, it } from 'vitest';
import { endAll } from '../support/processes.ts';
import {
  keysOfRoles,
  NO_PYTHON,
  PYTHON,
  SCHEMATHESIS_ROLES,
  type SchemathesisRole,
  type SchemathesisRun,
  schemathesis,
} from '../support/schemathesis.ts';
import { openTestCluster, type TestCluster } from '../support/test-cluster.ts';

const LONG = process.env.OTELA_SCHEMATHESIS === 'long';
const TIMEOUT_MS = LONG ? 3_600_000 : 900_000;

/** Roles other than operators may call few operations: for most they get the same refusal. */
const SHORT: Partial<Record<SchemathesisRole, SchemathesisRun>> = {
  operator: { phases: ['coverage'], examples: 1, timeoutMs: TIMEOUT_MS },
  provider: { phases: ['fuzzing'], examples: 2, timeoutMs: TIMEOUT_MS },
};
const WHOLE: SchemathesisRun = {
  phases: ['examples', 'coverage', 'fuzzing'],
  examples: 40,
  timeoutMs: TIMEOUT_MS,
};

let cluster: TestCluster;
let keys: Record<SchemathesisRole, string>;
beforeAll(async () => {
  if (PYTHON === undefined) return;
  cluster = await openTestCluster();
  keys = await keysOfRoles(cluster.gateway);
});
afterAll(endAll);

for (const role of SCHEMATHESIS_ROLES) {
  const run = LONG ? WHOLE : SHORT[role];
  if (run === undefined) continue;
  it.concurrent(`Schemathesis finds nothing as ${role}: what a schema allows is taken, what it does not is refused`, {
    timeout: TIMEOUT_MS,
  }, async ({ skip, expect }) => {
    if (PYTHON === undefined) return skip(NO_PYTHON);
    const { found, report } = await schemathesis(cluster.gateway, keys[role], run);
    expect(found, report).toBe(false);
  });
}
