/** Processor time of other processes, which is meaningful on a busy machine, unlike wall time. */
import { ranFor } from '../ran-for.ts';

const NS_PER_MS = 1e6;

/** Milliseconds that these processes have run so far, including in the kernel. */
export function processorMs(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + ranFor(pid), 0) / NS_PER_MS;
}
