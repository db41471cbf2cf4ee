/**
 * `npm run install:measure` measures the wait of a first installation. It clones the committed state, runs `npm ci` and
 * `npm start` there with an empty home and an empty npm cache, and prints fetched bytes, MiB unpacked and on disk, and
 * seconds until the URL. With `--tests` it also prints the seconds and CPU seconds of `npm test` there, with `--slow`
 * those of start and tests on a fifth of one core (root; hours). It fails above the bounds.
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { endedChildrenSeconds } from '../../test/support/ended-children.ts';
import { endAll, freePort, Managed } from '../../test/support/processes.ts';
import { MIB, mib, sizeOf } from './folder-size.ts';
import { outsideScript } from './npm.js';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const FETCHED_MAX_BYTES = 150 * MIB;
const UNPACKED_MAX_BYTES = 300 * MIB;
/** Time limit of an installation: enough for a slow connection and a slow machine. */
const INSTALL_MS = 2 * 3_600_000;
const START_MS = 3_600_000;
const TESTS_MS = 3 * 3_600_000;
/** Matches figures of `npm run test:slow`, failed tests, and the commands that run these again. */
const PRINTED = /^(?:(?:ok|FAILED|its URL after) |failed: | {2}again: ).*$/gm;

const seconds = (sinceMs: number) => `${((performance.now() - sinceMs) / 1_000).toFixed(1)} s`;

function strings(env: NodeJS.ProcessEnv): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]])),
  );
}

/** Runs `npm ARGS` in the clone. Resolves to false if it failed. */
async function test(clone: string, env: Record<string, string>, args: string[]): Promise<boolean> {
  const [began, before] = [performance.now(), endedChildrenSeconds()];
  const run = new Managed(['npm', ...args], { cwd: clone, env, label: 'npm' });
  const { code } = await run.end(TESTS_MS);
  const used = (endedChildrenSeconds() - before).toFixed(0);
  for (const [line] of run.output.matchAll(PRINTED)) console.log(line);
  console.log(`npm ${args.join(' ').padEnd(14)} ${seconds(began)}, ${used} CPU s${code === 0 ? '' : ', FAILED'}`);
  if (code !== 0) console.error(run.tail);
  return code === 0;
}

async function measure(work: string): Promise<boolean> {
  const [clone, home, cache] = [join(work, 'clone'), join(work, 'home'), join(work, 'cache')];
  mkdirSync(home);
  // The environment contains the registry and proxy settings of this machine.
  const outside = outsideScript(process.env);
  const userconfig = execFileSync('npm', ['config', 'get', 'userconfig'], { encoding: 'utf8', env: outside }).trim();
  const env = strings({ ...outside, HOME: home, npm_config_cache: cache, npm_config_userconfig: userconfig });
  execFileSync('git', ['clone', '--quiet', ROOT, clone], { env });
  const began = performance.now();
  const install = new Managed(['npm', 'ci', '--loglevel=error'], { cwd: clone, env, label: 'npm ci' });
  const { code } = await install.end(INSTALL_MS);
  if (code !== 0) throw install.failure(`ended with ${code}`);
  console.log(`npm ci             ${seconds(began)}`);
  const start = ['npm', 'start', '--silent', '--', '--port', String(await freePort())];
  const started = new Managed(start, { cwd: clone, env, label: 'npm start' });
  await started.line(/^ {2}URL +http\S+$/m, START_MS);
  console.log(`URL after          ${seconds(began)}`);
  await started.stop();
  const fetched = sizeOf(join(cache, '_cacache/content-v2')).bytes;
  const modules = sizeOf(join(clone, 'node_modules'));
  const dist = sizeOf(join(clone, 'dist'));
  console.log(`fetched            ${mib(fetched)} MiB (${fetched} bytes; at most ${mib(FETCHED_MAX_BYTES).trim()})`);
  console.log(`unpacked           ${mib(modules.bytes)} MiB (at most ${mib(UNPACKED_MAX_BYTES).trim()})`);
  console.log(`on disk            ${mib(modules.diskBytes)} MiB, and ${mib(dist.diskBytes).trim()} MiB that was built`);
  let isGood = fetched <= FETCHED_MAX_BYTES && modules.bytes <= UNPACKED_MAX_BYTES;
  const slow = ['start', 'tests'].map((part) => ['run', 'test:slow', '--', part]);
  for (const args of [...(values.tests ? [['test']] : []), ...(values.slow ? slow : [])])
    isGood = (await test(clone, env, args)) && isGood;
  return isGood;
}

const flag = { type: 'boolean', default: false } as const;
const { values } = parseArgs({ options: { tests: flag, slow: flag } });
const work = mkdtempSync(join(tmpdir(), 'otela-install-'));
// Tests start programs of the clone as other users.
chmodSync(work, 0o755);
try {
  if (!(await measure(work))) process.exitCode = 1;
} finally {
  await endAll();
  rmSync(work, { recursive: true, force: true });
}
