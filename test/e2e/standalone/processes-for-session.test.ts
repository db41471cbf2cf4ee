/** Which processes an agent connects to: agents are spread, and a change of the processes moves few of them. */
import { expect, test } from 'vitest';
import type { ProcessRow } from '../../../gateway/hosts/node/cluster/process-table.ts';
import { processesFor } from '../../../gateway/hosts/node/cluster/processes-for-session.ts';

const PROCESSES = 32;
const SESSIONS = Array.from({ length: 10_000 }, (_, n) => `session-${n}`);
/** A process may have a quarter more sockets than its share. */
const MOST = (1.25 * 2 * SESSIONS.length) / PROCESSES;

const row = (process: number): ProcessRow => ({
  incarnation: `i${process}`,
  process,
  address: '',
  url: `https://gw${process}.example.org`,
  version: '1',
  beat: 0,
  stores: true,
});
const all = Array.from({ length: PROCESSES }, (_, n) => row(n));
const choices = (running: readonly ProcessRow[]) =>
  SESSIONS.map((session) => processesFor(session, running).map(({ process }) => process));

test('10,000 agents have two processes each, and none of 32 processes has far more than the others', () => {
  const sockets = new Map<number, number>();
  for (const chosen of choices(all)) {
    expect(new Set(chosen).size).toBe(2);
    for (const process of chosen) sockets.set(process, (sockets.get(process) ?? 0) + 1);
  }
  expect(sockets.size).toBe(PROCESSES);
  expect(Math.max(...sockets.values())).toBeLessThan(MOST);
});

test('if a process ends, only its agents get another one, and keep their second', () => {
  const ended = 7;
  const [before, after] = [choices(all), choices(all.filter(({ process }) => process !== ended))];
  for (const [n, chosen] of before.entries()) {
    const kept = chosen.filter((process) => process !== ended);
    expect(after[n]).toEqual(expect.arrayContaining(kept));
    if (kept.length === chosen.length) expect(after[n]).toEqual(chosen);
  }
});

test('a process without an address for agents is not chosen, and one process alone is', () => {
  const unnamed = { ...row(1), url: undefined };
  expect(processesFor('s', [unnamed, row(0)])).toEqual([row(0)]);
  expect(processesFor('s', [])).toEqual([]);
});
