/** Two institutions agree on a month, or see which requests they dispute and why. */
import { expect, test } from 'vitest';
import { requireCounterparts, StatementComparison } from '../../../shared/usage/compare-statements.ts';
import { StatementError, type StatementHead } from '../../../shared/usage/signed-statement.ts';
import type { StatementRecord } from '../../../shared/usage/statement-record.ts';

const record = (request: string, more: Partial<StatementRecord> = {}): StatementRecord => ({
  at: '2026-11-20T16:20:00.000Z',
  request,
  attempt: 1,
  session: 'a'.repeat(26),
  provider: 'lab',
  model: 'org/m',
  project: null,
  prompt: 10,
  completion: 5,
  cached: 0,
  reasoning: 0,
  gpu_ms: null,
  estimated: false,
  ...more,
});

function compare(ours: readonly StatementRecord[], theirs: readonly StatementRecord[]) {
  const made = new StatementComparison();
  for (const one of ours) made.add('ours', one);
  for (const one of theirs) made.add('theirs', one);
  const disputes = [...made.disputes()].map(({ request, kind, members, estimated }) => ({
    request,
    kind,
    members,
    estimated,
  }));
  return { agreed: made.agreed, disputes };
}

test('clocks, sessions and GPU time may differ', () => {
  const theirs = record('r1', { at: '2026-11-20T16:24:00.000Z', session: 'b'.repeat(26), gpu_ms: 900 });
  expect(compare([record('r1')], [theirs])).toEqual({ agreed: 1, disputes: [] });
});

test('each kind of dispute is found, whatever the order', () => {
  const ours = [record('same'), record('ours'), record('more'), record('twice'), record('crash', { estimated: true })];
  const theirs = [
    record('crash', { completion: 9 }),
    record('more', { completion: 6, project: 'proj_1' }),
    record('theirs'),
    record('twice'),
    record('twice'),
    record('same'),
    record('same', { attempt: 2 }),
  ];
  const { agreed, disputes } = compare(ours, theirs);
  expect(agreed).toBe(1);
  expect(disputes).toEqual([
    { request: 'ours', kind: 'ours', members: [], estimated: false },
    { request: 'more', kind: 'different', members: ['project', 'completion'], estimated: false },
    { request: 'twice', kind: 'twice', members: [], estimated: false },
    { request: 'crash', kind: 'different', members: ['completion'], estimated: true },
    { request: 'theirs', kind: 'theirs', members: [], estimated: false },
    { request: 'same', kind: 'theirs', members: [], estimated: false },
  ]);
});

test('names of requests are not names of members', () => {
  expect(compare([record('__proto__')], [record('constructor')]).disputes.map(({ kind }) => kind)).toEqual([
    'ours',
    'theirs',
  ]);
});

test.each([
  [{ month: '2026-10' }, '2026-10'],
  [{ side: 'served' as const }, 'both statements'],
  [{ issuer: 'c'.repeat(26) }, 'other pairs'],
  [{ peer: 'c'.repeat(26) }, 'other pairs'],
])('statements that are not about the same requests are refused: %o', (more, why) => {
  const head = { month: '2026-11', side: 'served', issuer: 'a'.repeat(26), peer: 'b'.repeat(26) } as StatementHead;
  const theirs: StatementHead = { ...head, side: 'used', issuer: head.peer, peer: head.issuer };
  requireCounterparts(head, theirs);
  expect(() => requireCounterparts(head, { ...theirs, ...more })).toThrow(StatementError);
  expect(() => requireCounterparts(head, { ...theirs, ...more })).toThrow(why);
});
