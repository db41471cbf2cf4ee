/** The long form of test/e2e/schemathesis.test.ts. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from '../support/where.ts';

const args = ['run', '--project', 'e2e', 'test/e2e/schemathesis.test.ts'];
const { status } = spawnSync(process.execPath, [join(ROOT, 'node_modules/vitest/vitest.mjs'), ...args], {
  cwd: ROOT,
  stdio: 'inherit',
  env: { ...process.env, OTELA_SCHEMATHESIS: 'long' },
});
process.exitCode = status ?? 1;
