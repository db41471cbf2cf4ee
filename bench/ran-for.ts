import { readdirSync, readFileSync } from 'node:fs';

/** Total run time of a process's threads, in ns: the first number of each schedstat. */
export function ranFor(pid: number): number {
  const tasks = readdirSync(`/proc/${pid}/task`);
  return tasks.reduce((sum, task) => {
    try {
      return sum + Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]);
    } catch {
      return sum; // The thread has just ended.
    }
  }, 0);
}
