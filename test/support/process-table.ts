/** Reads the current processes from /proc. */
import { readdirSync, readFileSync } from 'node:fs';

/** Ids of all current processes; none on systems without /proc. */
export function processIds(): number[] {
  try {
    return readdirSync('/proc')
      .filter((name) => /^\d+$/.test(name))
      .map(Number);
  } catch {
    return [];
  }
}

/** Parent of a process, from /proc/PID/stat (the name in it may contain spaces and parentheses). */
function parentOf(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
  } catch {
    return -1;
  }
}

/** All current descendants of a process. */
export function descendants(pid: number): number[] {
  const children = new Map<number, number[]>();
  for (const id of processIds()) {
    const parent = parentOf(id);
    children.set(parent, [...(children.get(parent) ?? []), id]);
  }
  const found: number[] = [];
  const next = [pid];
  for (let at = next.shift(); at !== undefined; at = next.shift()) {
    for (const child of children.get(at) ?? []) {
      found.push(child);
      next.push(child);
    }
  }
  return found;
}

export function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ').trim();
  } catch {
    return '';
  }
}

/** Resident set of a process in MiB, and its peak. */
export function memoryOf(pid: number): { rssMib: number; peakMib: number } {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const field = (name: string) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1] ?? 0) / 1024;
  return { rssMib: field('VmRSS'), peakMib: field('VmHWM') };
}
