/**
 * `npm run soak -- gateways`: two gateways of one institution are killed, cut off, promoted and upgraded with twelve
 * agents, several times; one follows as a real older version, built from the history of this clone.
 */
import { spawnSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { olderGateway } from '../support/older-gateway.ts';
import { NODE, ROOT } from '../support/where.ts';

const directory = await mkdtemp(join(tmpdir(), 'otela-older-'));
const older = await olderGateway(directory);
console.log(
  typeof older === 'string'
    ? `the older gateway is this one over a database with other columns: ${older}`
    : `the older gateway is commit ${older.commit}`,
);
const { status } = spawnSync(
  NODE,
  [join(ROOT, 'node_modules/vitest/vitest.mjs'), 'run', '--project', 'e2e', 'test/e2e/replication'],
  {
    cwd: ROOT,
    stdio: 'inherit',
    env: {
      ...process.env,
      OTELA_KILL_ROUNDS: '4',
      OTELA_ROLLING_AGENTS: '12',
      ...(typeof older === 'string' ? {} : { OTELA_OLDER_GATEWAY: older.file }),
    },
  },
);
await rm(directory, { recursive: true, force: true });
process.exitCode = status ?? 1;
