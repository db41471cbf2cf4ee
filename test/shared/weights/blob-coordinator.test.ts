import { createHash } from 'node:crypto';
import { expect, it } from 'vitest';
import { Coordinator, MEMBERSHIPS_MAX } from '../../../shared/weights/blob-coordinator.ts';

const blob = (name: string) => createHash('sha256').update(name).digest('hex');
const MODEL = blob('model');

function coordinator(gone: ReadonlySet<string> = new Set()) {
  return new Coordinator({ fanout: 2, lives: (session) => !gone.has(session) });
}

it('a node that asks for random blobs pushes out its own, not those of others', () => {
  const table = coordinator();
  expect(table.answer('reader', { blob: MODEL, role: 'wants' }, 0)).toEqual({ kind: 'read' });
  for (let i = 0; i < MEMBERSHIPS_MAX + 100; i++)
    table.answer(`flood${i % 3}`, { blob: blob(`${i}`), role: 'wants' }, 1);
  expect(table.memberships).toBe(MEMBERSHIPS_MAX);
  expect(table.roots(MODEL)).toEqual(['reader']);
  expect(table.answer('late', { blob: MODEL, role: 'wants' }, 2)).toEqual({ kind: 'peer', session: 'reader' });
});

it('what nodes that left had asked for goes first', () => {
  const gone = new Set<string>();
  const table = coordinator(gone);
  for (let i = 0; i < MEMBERSHIPS_MAX - 1; i++) table.answer('left', { blob: blob(`${i}`), role: 'holds' }, 0);
  gone.add('left');
  for (const name of ['one', 'two']) table.answer('stays', { blob: blob(name), role: 'holds' }, 1);
  expect(table.memberships).toBe(2);
});

it('a node that drops a blob, or whose lease ends, is counted no more', () => {
  const table = coordinator();
  table.answer('a', { blob: MODEL, role: 'holds' }, 0);
  table.answer('b', { blob: MODEL, role: 'wants' }, 0);
  table.answer('a', { blob: MODEL, role: 'drops' }, 1);
  expect(table.memberships).toBe(1);
  table.answer('c', { blob: MODEL, role: 'drops' }, 60_000);
  expect(table.memberships).toBe(0);
});
