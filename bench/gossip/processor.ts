/** Processor time of other processes: what wall time on a busy machine cannot tell. */
import { ranFor } from '../ran-for.ts';

const NS_PER_MS = 1e6;

/** ms that these processes ran so far, in the kernel included. */
export function processorMs(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + ranFor(pid), 0) / NS_PER_MS;
}
