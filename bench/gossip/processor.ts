/** Processor time of other processes: what wall time on a busy machine cannot tell. */
import { readdirSync, readFileSync } from 'node:fs';

/** ms that the threads of these processes ran so far, in the kernel included: first field of proc(5)'s schedstat, in ns. */
export function processorMs(pids: readonly number[]): number {
  let ns = 0;
  for (const pid of pids) {
    for (const task of readdirSync(`/proc/${pid}/task`)) {
      ns += Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]);
    }
  }
  return ns / 1e6;
}
