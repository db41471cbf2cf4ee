import { createHash } from 'node:crypto';
import type { ProcessRow } from './process-table.ts';

/** An agent has sockets to this number of processes, in addition to its configured address. */
const SOCKETS = 2;

/**
 * The processes to which a session's agent connects, by rendezvous hashing: a process that joins or ends changes the
 * choice only of the sessions that get it or had it.
 */
export function processesFor(session: string, running: readonly ProcessRow[]): ProcessRow[] {
  const reachable = running.filter(({ url }) => url !== undefined);
  const weighted = reachable.map((row) => ({ row, weight: weightOf(session, row.process) }));
  weighted.sort((a, b) => (a.weight < b.weight ? 1 : -1));
  return weighted.slice(0, SOCKETS).map(({ row }) => row);
}

function weightOf(session: string, process: number): string {
  return createHash('sha256').update(`${session} ${process}`).digest('hex');
}
