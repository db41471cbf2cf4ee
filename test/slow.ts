/**
 * `npm run test:slow` tests the product on a machine that is many times slower: a control group with a fifth of one
 * core. `npm run test:slow -- PART…` runs parts: `start` (`npm start` until it has answered), `story` (streams, a key,
 * a batch and a reconnect), `quickstarts`, `tests` (all of `npm test`: hours), parts of `npm test` (`checks,e2e`),
 * or names of test files. Each has a group to itself, so several commands at the same time divide the hours. It prints
 * wall and CPU seconds of each, and exits with 1 if one failed. Needs Linux and root.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { SLOWNESS_VARIABLE } from './support/patience.ts';
import { freePort } from './support/processes.ts';
import { SlowGroup } from './support/slow-group.ts';
import { NODE, ROOT } from './support/where.ts';
import { PARTS } from './tiers.ts';

const VITEST = ['node_modules/vitest/vitest.mjs', 'run'];
const STORIES: Readonly<Record<string, () => Promise<string[]>>> = {
  start: async () => ['test/support/slow-start.ts', String(await freePort())],
  story: async () => [...VITEST, '--project', 'e2e', 'test/e2e/slow-machine.test.ts'],
  quickstarts: async () => [...VITEST, '--project', 'docs', 'test/docs/quickstart.test.ts'],
  tests: async () => ['test/run.ts'],
};

/** `name`: names of parts of `npm test`, separated by commas; or a test file. */
function partOrFile(name: string): string[] {
  const parts = name.split(',');
  const arePartNames = parts.every((part) => part === 'checks' || PARTS.some((known) => known === part));
  return arePartNames ? ['test/run.ts', ...parts] : [...VITEST, name];
}

interface Ended {
  name: string;
  code: number;
  told: string;
}

async function run(name: string): Promise<Ended> {
  const argv = await (STORIES[name]?.() ?? Promise.resolve(partOrFile(name)));
  const group = SlowGroup.make();
  const begunAt = performance.now();
  const [file = '', ...args] = group.command([NODE, ...argv]);
  // The speed of this machine is not the group's: each run there measures its own.
  const child = spawn(file, args, {
    cwd: ROOT,
    stdio: 'inherit',
    env: { ...process.env, OTELA_SLOW_GROUP: 'on', [SLOWNESS_VARIABLE]: undefined },
  });
  const [code] = (await once(child, 'exit')) as [number | null];
  const seconds = (performance.now() - begunAt) / 1_000;
  const told = [`${seconds.toFixed(0)} s`, `${group.cpuSeconds.toFixed(0)} CPU s`].join(', ');
  const stood = `stood still for ${group.throttledSeconds.toFixed(0)} s`;
  await removed(group);
  return { name, code: code ?? 1, told: `${told}, ${stood}` };
}

/** Processes that were ended may take a moment. */
async function removed(group: SlowGroup): Promise<void> {
  for (let tries = 0; ; tries++) {
    try {
      return group.remove();
    } catch (error) {
      if (tries === 100) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}

const asked = process.argv.slice(2);
const ended: Ended[] = [];
for (const name of asked.length > 0 ? asked : Object.keys(STORIES)) {
  console.log(`\n== ${name}, with a fifth of one core`);
  ended.push(await run(name));
}
console.log('');
for (const { name, code, told } of ended) console.log(`${code === 0 ? 'ok    ' : 'FAILED'} ${name}: ${told}`);
process.exitCode = ended.every(({ code }) => code === 0) ? 0 : 1;
