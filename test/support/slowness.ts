/** Measures how slow this machine is, once for a run and all its processes; `patience.ts` uses it. */
import { spawnSync } from 'node:child_process';
import { SLOWNESS_VARIABLE } from './patience.ts';

/** Duration of Node's start on the machine for which the tests' times were chosen. */
const NODE_START_MS = 45;
const MOST_SLOWNESS = 100;

/**
 * Starting a process depends on the disk, the kernel and a CPU quota; a counting loop would depend only on the core.
 */
function nodeStartMs(): number {
  const from = performance.now();
  spawnSync(process.execPath, ['-e', '0'], { stdio: 'ignore' });
  return performance.now() - from;
}

if (process.env[SLOWNESS_VARIABLE] === undefined) {
  const [, median = NODE_START_MS] = [nodeStartMs(), nodeStartMs(), nodeStartMs()].toSorted((a, b) => a - b);
  process.env[SLOWNESS_VARIABLE] = Math.min(MOST_SLOWNESS, Math.max(1, median / NODE_START_MS)).toFixed(2);
}
