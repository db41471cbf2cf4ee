/** Measures how slow this machine is, once for a run and all its processes; `patience.ts` goes by it. */
import { spawnSync } from 'node:child_process';
import { SLOWNESS_VARIABLE } from './patience.ts';

/** Node's own start on the machine that the tests' times were chosen on. */
const NODE_START_MS = 45;
const MOST_SLOWNESS = 100;

/** The start of a process takes the disk, the kernel and a quota of the CPU into account; a loop that counts takes only the core. */
function nodeStartMs(): number {
  const from = performance.now();
  spawnSync(process.execPath, ['-e', '0'], { stdio: 'ignore' });
  return performance.now() - from;
}

if (process.env[SLOWNESS_VARIABLE] === undefined) {
  const [, median = NODE_START_MS] = [nodeStartMs(), nodeStartMs(), nodeStartMs()].toSorted((a, b) => a - b);
  process.env[SLOWNESS_VARIABLE] = Math.min(MOST_SLOWNESS, Math.max(1, median / NODE_START_MS)).toFixed(2);
}
