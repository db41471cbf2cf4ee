import { readdirSync, readFileSync } from 'node:fs';

/** What all threads of a process have run for, in ns: the first number of each one's schedstat. */
export function ranFor(pid: number): number {
  const tasks = readdirSync(`/proc/${pid}/task`);
  return tasks.reduce((sum, task) => {
    try {
      return sum + Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]);
    } catch {
      return sum; // the thread has just ended
    }
  }, 0);
}
