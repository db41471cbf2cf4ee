/** `npm run soak -- gateways`: two gateways of one institution, killed, cut off, promoted, upgraded with twelve agents, several times over. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { NODE, ROOT } from '../support/where.ts';

const { status } = spawnSync(
  NODE,
  [join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', '--project', 'e2e', 'test/e2e/following'],
  {
    cwd: ROOT,
    stdio: 'inherit',
    env: { ...process.env, OTELA_KILL_ROUNDS: '4', OTELA_ROLLING_AGENTS: '12' },
  },
);
process.exitCode = status ?? 1;
