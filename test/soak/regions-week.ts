/**
 * `npm run soak -- regions-week`: the replay of test/netns with ServeGen's first week, 168 minutes. `node
 * test/soak/regions-week.ts --hours 24` replays its first day in 24 minutes.
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { NODE, ROOT } from '../support/where.ts';

const { values } = parseArgs({ options: { hours: { type: 'string', default: '168' } } });
const hours = Number(values.hours);
if (!(hours >= 1)) {
  console.error(`--hours ${values.hours} is no number of at least 1`);
  process.exit(2);
}
const { status } = spawnSync(
  NODE,
  [join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', '--project', 'netns', 'test/netns/regions-replay.test.ts'],
  { cwd: ROOT, stdio: 'inherit', env: { ...process.env, OTELA_REGIONS_HOURS: String(hours) } },
);
process.exitCode = status ?? 1;
