import { readdirSync, readFileSync } from 'node:fs';

/**
 * Resident memory of a process group in bytes, from proc(5); 0 without /proc. Pages that two of its processes share
 * count twice.
 */
export function groupMemoryBytes(group: number): number {
  let pids: string[];
  try {
    pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  } catch {
    return 0;
  }
  return pids.reduce((sum, pid) => sum + residentOf(pid, group), 0);
}

/** Resident memory in bytes of a process, if it belongs to the group; otherwise 0. */
function residentOf(pid: string, group: number): number {
  try {
    // `pid (comm) state ppid pgrp …`
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    if (Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2]) !== group) return 0;
    // In kB. `stat` counts pages, and some arm64 machines have pages of 64 KiB.
    return Number(/^VmRSS:\s*(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0) * 1_024;
  } catch {
    return 0;
  }
}
