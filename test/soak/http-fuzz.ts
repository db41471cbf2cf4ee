/** The long form of test/e2e/http-fuzz.test.ts. `OTELA_FUZZ_SEED` repeats a run. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from '../support/where.ts';

const args = ['run', '--project', 'e2e', 'test/e2e/http-fuzz.test.ts'];
const { status } = spawnSync(process.execPath, [join(ROOT, 'node_modules/vitest/vitest.mjs'), ...args], {
  cwd: ROOT,
  stdio: 'inherit',
  env: { ...process.env, OTELA_FUZZ_SECONDS: process.env.OTELA_FUZZ_SECONDS ?? '600' },
});
process.exitCode = status ?? 1;
