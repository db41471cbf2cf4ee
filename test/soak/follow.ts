/**
 * `npm run soak -- follow`: test/e2e/follow.test.ts with an empty history. Its planner records two days, and must change
 * the deployment before the mix of requests flips on the third.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { NODE, ROOT } from '../support/where.ts';

const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
const { status } = spawnSync(NODE, [vitest, 'run', '--project', 'e2e', 'test/e2e/follow.test.ts'], {
  cwd: ROOT,
  stdio: 'inherit',
  env: { ...process.env, OTELA_FOLLOW_DAYS: '2' },
});
process.exitCode = status ?? 1;
