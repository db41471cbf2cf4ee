/** `npm run soak -- game-day`: the game day of test/netns, with six quiet minutes before each event. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { NODE, ROOT } from '../support/where.ts';

const CALM_S = 360;

const { status } = spawnSync(
  NODE,
  [join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', '--project', 'netns', 'test/netns/game-day.test.ts'],
  { cwd: ROOT, stdio: 'inherit', env: { ...process.env, OTELA_GAME_DAY_CALM_S: String(CALM_S) } },
);
process.exitCode = status ?? 1;
