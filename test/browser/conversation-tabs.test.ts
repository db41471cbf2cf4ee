/** A conversation that is open in two tabs: the changes of both are kept. */
import { expect, test } from 'vitest';
import { merged } from '../../dashboard/chat/merge-conversations.ts';

interface Turn {
  text: string;
  state: 'done' | 'failed';
}
const done = (text: string): Turn => ({ text, state: 'done' });
const SETTINGS = { system: '' };
const BASE = {
  id: 'c',
  title: 'old',
  createdAt: 0,
  updatedAt: 1,
  settings: SETTINGS,
  threads: [{ model: 'm', turns: { first: done('first') } as Record<string, Turn>, chosen: { '': 'first' } }],
};
type Told = Parameters<typeof merged<Turn, typeof SETTINGS>>[0];

/** As a tab reads it from the store: as new objects. */
const copied = (conversation: Told): Told => structuredClone(conversation);
const asking = (of: Told, turns: Record<string, Turn>): Told => ({
  ...of,
  updatedAt: of.updatedAt + 1,
  threads: of.threads.map((thread) => ({ ...thread, turns: { ...thread.turns, ...turns } })),
});
const idsOf = ({ threads }: Told) => threads.map(({ turns }) => Object.keys(turns).sort());

test('the questions of both tabs are kept', () => {
  const kept = merged(BASE, asking(BASE, { ours: done('') }), copied(asking(BASE, { theirs: done('') })));
  expect(idsOf(kept)).toEqual([['first', 'ours', 'theirs']]);
});

test('an answer that the other tab has finished stays finished', () => {
  const running = asking(BASE, { answer: { text: '', state: 'failed' } });
  const stored = copied(asking(BASE, { answer: done('whole') }));
  const kept = merged(running, { ...running, title: 'new', titled: true }, stored);
  expect(kept.threads[0]?.turns.answer).toEqual(done('whole'));
  expect(kept).toMatchObject({ title: 'new', titled: true });
});

test('a title and settings that were not changed here are the stored ones', () => {
  const theirs = copied({ ...BASE, title: 'theirs', settings: { system: 'Be brief' } });
  const kept = merged(BASE, asking(BASE, { ours: done('') }), theirs);
  expect(kept).toMatchObject({ title: 'theirs', settings: { system: 'Be brief' } });
});

test('a second model that is asked here, or there, has the questions of both tabs', () => {
  const [first = { model: '', turns: {}, chosen: {} }] = BASE.threads;
  const compared = { ...BASE, threads: [first, { ...first, model: 'n' }] };
  expect(idsOf(merged(BASE, compared, copied(asking(BASE, { theirs: done('') }))))).toEqual([
    ['first', 'theirs'],
    ['first'],
  ]);
  expect(idsOf(merged(BASE, asking(BASE, { ours: done('') }), copied(compared)))).toEqual([
    ['first', 'ours'],
    ['first'],
  ]);
});
