/**
 * Hosts on which engines do not start, while the same recipe serves on other hosts: a broken driver, a full disk. The
 * scheduler gives such a host to each new job, because the host is always free. Schedulers call it a black hole.
 */
import { formatMs } from '../config/value-schemas.ts';
import { jobKey, type Memory } from './persisted-state.ts';

/** Consecutive failed starts after which a host gets no jobs. One may be bad luck. */
const FAILED_MAX = 2;
const BLOCKED_FIRST_MS = 3_600_000;
const BLOCKED_MAX_MS = 86_400_000;
/** Maximum hosts in one submission's list: a longer list is a fault of the cluster, not of hosts. */
export const EXCLUDED_MAX = 32;
/** Maximum hosts that are remembered. The host with the oldest failure is forgotten. */
const HOSTS_MAX = 256;
/** Names that can be written into a script and into a command line. */
const HOST = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,254}$/;

/** True if the text is the name of one host. A list of hosts, or a text of a hostile scheduler, is not. */
export function isHostName(text: string | undefined): text is string {
  return text !== undefined && HOST.test(text);
}

/** Records that a job did not start on a host. @returns a clause for the history if the host is blocked now */
export function recordHostFailure(memory: Memory, cluster: string, host: string, now: number): string | undefined {
  const key = jobKey(cluster, host);
  const { [key]: before, ...others } = memory.hosts;
  const failed = (before?.failed ?? 0) + 1;
  const blockedMs = Math.min(BLOCKED_MAX_MS, BLOCKED_FIRST_MS * 2 ** Math.max(0, failed - FAILED_MAX));
  const isBlocked = failed >= FAILED_MAX;
  const kept = Object.entries(others)
    .sort(([, a], [, b]) => a.at - b.at)
    .slice(-(HOSTS_MAX - 1));
  memory.hosts = { ...Object.fromEntries(kept), [key]: { failed, at: now, until: isBlocked ? now + blockedMs : 0 } };
  return isBlocked ? `${host} gets no jobs for ${formatMs(blockedMs)} after ${failed} failed starts` : undefined;
}

/** Clears a host's failures, because a job served there. */
export function recordHostRecovery(memory: Memory, cluster: string, host: string): void {
  delete memory.hosts[jobKey(cluster, host)];
}

/** Hosts of a cluster that get no jobs now: those that failed last, at most EXCLUDED_MAX. */
export function blockedHosts(memory: Memory, cluster: string, now: number): string[] {
  const prefix = jobKey(cluster, '');
  return Object.entries(memory.hosts)
    .filter(([key, { until }]) => key.startsWith(prefix) && until > now)
    .sort(([, a], [, b]) => b.at - a.at)
    .slice(0, EXCLUDED_MAX)
    .map(([key]) => key.slice(prefix.length))
    .sort();
}

/** Forgets a cluster's hosts: its scheduler refused their names, because a host is gone. */
export function forgetHosts(memory: Memory, cluster: string): void {
  const prefix = jobKey(cluster, '');
  memory.hosts = Object.fromEntries(Object.entries(memory.hosts).filter(([key]) => !key.startsWith(prefix)));
}
