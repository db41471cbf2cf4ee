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

/** Number of context switches of a process's threads: how often a thread waited, or had to yield. */
export function switchesOf(pid: number): number {
  return readdirSync(`/proc/${pid}/task`).reduce((sum, task) => {
    try {
      const status = readFileSync(`/proc/${pid}/task/${task}/status`, 'utf8');
      return sum + [...status.matchAll(/_switches:\s+(\d+)/g)].reduce((all, [, n]) => all + Number(n), 0);
    } catch {
      return sum; // The thread has just ended.
    }
  }, 0);
}
