/** The long form of test/slurm/batch.test.ts: 2,000 lines in a real Slurm (root). */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { ROOT } from '../support/where.ts';

const args = ['run', '--project', 'slurm', 'test/slurm/batch.test.ts'];
const { status } = spawnSync(process.execPath, [join(ROOT, 'node_modules/vitest/vitest.mjs'), ...args], {
  cwd: ROOT,
  stdio: 'inherit',
  env: { ...process.env, OTELA_BATCH_LINES: '2000' },
});
process.exitCode = status ?? 1;
