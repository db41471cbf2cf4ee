import { expect, it } from 'vitest';
import type { JournalEntry } from '../support/engine/journal.ts';
import type { Result } from './client.ts';
import { type AuditedReplica, audit } from './ledger.ts';

const LEFT_AT = 1_000_000;

/** An engine with a journal of one aborted request. Times: ms after the client's disconnect. */
function engine(name: string, begun: number, aborted: number): AuditedReplica {
  const common = { marker: 'm', tokens: 0, status: 0, pid: 1 };
  const entries: JournalEntry[] = [
    { ...common, what: 'up', id: 0, at: 0 },
    { ...common, what: 'begun', id: 1, at: LEFT_AT + begun },
    { ...common, what: 'aborted', id: 1, at: LEFT_AT + aborted },
  ];
  return { name, spells: [], journals: ['journal'], running: true, entries: () => entries };
}

const LEFT: Result = {
  wish: { kind: 'unary', path: '/v1/completions', marker: 'm', tokens: 16, leaveMs: 300 },
  verdict: 'left',
  startedAt: LEFT_AT - 300,
  endedAt: LEFT_AT,
  firstMs: Number.NaN,
  status: 0,
  attempts: 0,
  node: '',
  continued: false,
  problem: '',
};

const leftBehind = (...engines: AuditedReplica[]) => audit(engines, [LEFT]).leftBehind.length;

it('a first attempt that began late, and ended at once, is not left behind', () => {
  expect(leftBehind(engine('a', 1_516, 1_550))).toBe(0);
});

it('an attempt that goes on for more than a second for a client that left is left behind', () => {
  expect(leftBehind(engine('a', -200, 900))).toBe(0);
  expect(leftBehind(engine('a', -200, 1_100))).toBe(1);
  expect(leftBehind(engine('a', 1_516, 2_600))).toBe(1);
});

it('a further attempt that began late is left behind', () => {
  expect(leftBehind(engine('a', -200, -100), engine('b', 1_516, 1_550))).toBe(1);
});
