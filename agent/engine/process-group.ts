/** Sends signals to a whole process group, and checks whether any process of it still runs. */
import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

/** Interval at which an ending group is checked. */
const POLL_MS = 50;

/**
 * The kernel normally frees a killed process within this time. A process that remains hangs in a driver, and no further
 * signal helps.
 */
const KILL_WAIT_MS = 2000;

export function signalGroup(group: number, signal: NodeJS.Signals): void {
  try {
    process.kill(-group, signal);
  } catch {
    // ESRCH: the group has ended.
  }
}

/**
 * True if a process of the group runs. A group with only zombies has ended, although kill(2) finds it until they are
 * reaped.
 */
function groupRuns(group: number): boolean {
  try {
    process.kill(-group, 0);
  } catch {
    return false;
  }
  let pids: string[];
  try {
    pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  } catch {
    return true;
  }
  if (pids.length === 0) return true;
  return pids.some((pid) => runsInGroup(pid, group));
}

/** proc(5): `pid (comm) state ppid pgrp …`, and comm may contain blanks and parentheses. */
function runsInGroup(pid: string, group: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const [state, , pgrp] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return Number(pgrp) === group && state !== 'Z' && state !== 'X';
  } catch {
    return false;
  }
}

/** Tells whether any process of the group runs. */
type GroupRuns = (group: number) => boolean;

/**
 * Sends SIGTERM, and after `graceMs` SIGKILL. `hurry` ends the wait early. Resolves when no process of the group runs.
 */
export async function endGroup(
  group: number,
  graceMs: number,
  hurry: Promise<unknown>,
  runs: GroupRuns = groupRuns,
): Promise<void> {
  let waits = true;
  const stopWaiting = () => {
    waits = false;
  };
  hurry.then(stopWaiting, stopWaiting);
  if (graceMs > 0) signalGroup(group, 'SIGTERM');
  await waitUntilGone(group, graceMs, () => waits, runs);
  if (!runs(group)) return;
  signalGroup(group, 'SIGKILL');
  await waitUntilGone(group, KILL_WAIT_MS, () => true, runs);
}

/**
 * Measure the wait by a clock and not by the number of checks: with thousands of processes, one reading of `/proc`
 * takes a second.
 */
async function waitUntilGone(group: number, limitMs: number, waits: () => boolean, runs: GroupRuns): Promise<void> {
  const until = performance.now() + limitMs;
  while (performance.now() < until && waits() && runs(group)) await delay(POLL_MS);
}
