import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { candidatePool, NO_REQUIREMENTS, withoutTried } from '../../../shared/routing/candidates.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { randomPolicy } from '../../../shared/routing/policies/random.ts';
import { decideTrust, type TrustInput } from '../../../shared/routing/trusted-providers.ts';
import { costBeside } from '../../support/cost.ts';
import { entry } from './support.ts';

const NOBODY_SAYS: TrustInput = {
  own: 'local',
  lists: [],
  defaults: 'admitted',
  deleted: new Set(),
  policies: [],
};
const ANYBODY = decideTrust(NOBODY_SAYS);

const names = (entries: readonly { session: string }[]) => entries.map(({ session }) => session).sort();

const model = fc.record({
  id: fc.constantFrom('m', 'n', 'o'),
  state: fc.constantFrom('ready' as const, 'loading' as const),
});
const step = fc.oneof(
  fc.record({
    session: fc.constantFrom('a', 'b', 'c', 'd'),
    state: fc.constantFrom('JOIN' as const, 'SERVING' as const, 'DOWN' as const, 'LEFT' as const),
    suspected: fc.boolean(),
    models: fc.uniqueArray(model, { maxLength: 3, selector: ({ id }) => id }),
  }),
  fc.record({ gone: fc.constantFrom('a', 'b', 'c', 'd') }),
);

test('after any changes the index says what a look at every node says', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
      const index = new NodeIndex();
      const all = new Map<string, RegistryEntry>();
      for (const one of steps) {
        if ('gone' in one) {
          index.delete(one.gone);
          all.delete(one.gone);
        } else {
          const made = entry(one.session, one);
          index.put(made);
          all.set(one.session, made);
        }
      }
      expect(new Set(index.entries())).toEqual(new Set(all.values()));
      for (const id of ['m', 'n', 'o']) {
        const having = [...all.values()].filter(({ models }) => models.some((served) => served.id === id));
        const serving = having.filter(
          ({ state, models }) =>
            state === 'SERVING' && models.some((served) => served.id === id && served.state === 'ready'),
        );
        const nodes = index.model(id);
        expect(nodes === undefined).toBe(having.length === 0);
        expect(names(nodes?.all ?? [])).toEqual(names(having));
        expect(names(nodes?.ready ?? [])).toEqual(names(serving.filter(({ suspected }) => !suspected)));
        expect(names(nodes?.suspected ?? [])).toEqual(names(serving.filter(({ suspected }) => suspected)));
      }
    }),
  );
});

test('what was tried is no candidate again', () => {
  const index = new NodeIndex();
  for (const session of ['a', 'b', 'c']) index.put(entry(session, { suspected: session === 'c' }));
  const { ready, suspected } = candidatePool(index.model('m'), ANYBODY, NO_REQUIREMENTS, 0);
  expect(names(withoutTried(ready, new Set(['a'])))).toEqual(['b']);
  expect(names(withoutTried(suspected, new Set()))).toEqual(['c']);
  expect(candidatePool(index.model('unknown'), ANYBODY, NO_REQUIREMENTS, 0).ready).toEqual([]);
});

test('what is remembered for a trust set is worked out again when a node changes', () => {
  const index = new NodeIndex();
  const picky = decideTrust({ ...NOBODY_SAYS, lists: [['lab']] });
  index.put(entry('a'));
  index.put(entry('b', { provider: 'eth' }));
  const ready = () => names(candidatePool(index.model('m'), picky, NO_REQUIREMENTS, 0).ready);
  expect(ready()).toEqual(['a']);
  index.put(entry('c'));
  expect(ready()).toEqual(['a', 'c']);
  index.put(entry('a', { suspected: true }));
  expect(ready()).toEqual(['c']);
  index.delete('c');
  expect(ready()).toEqual([]);
});

test.each([
  ['all that were admitted', []],
  ['a list of providers', [['lab', 'eth']]],
])(
  'choosing one of a thousand nodes takes less than 0.05 ms of a processor where %s are trusted, and so does a change',
  (_, lists) => {
    const index = new NodeIndex();
    const sessions = Array.from({ length: 1000 }, (_unused, n) =>
      entry(`s${n}`, { provider: n % 3 === 0 ? 'lab' : 'psi' }),
    );
    for (const one of sessions) index.put(one);
    const trust = decideTrust({ ...NOBODY_SAYS, lists });
    const rounds = (act: (round: number) => void) => () => {
      for (let round = 0; round < 2_000; round++) act(round);
    };
    const asked = { model: 'm', priority: 'interactive' as const, inputTokens: 1 };
    const pick = () =>
      randomPolicy.pick(candidatePool(index.model('m'), trust, NO_REQUIREMENTS, 0).ready, asked, Math.random);
    const change = (round: number) => {
      const one = sessions[round % 1000];
      if (one !== undefined) index.put({ ...one, suspected: round % 2 === 0 });
    };
    // One look at each node, which any implementation needs if it does not know in advance which nodes are ready.
    const walk = rounds(() => sessions.reduce((sum, { session }) => sum + session.length, 0));
    const [chosen, changed] = [costBeside(rounds(pick), walk), costBeside(rounds(change), walk)];
    const both = costBeside(
      rounds((round) => {
        change(round);
        pick();
      }),
      walk,
    );
    for (const walks of [chosen, changed]) expect(walks).toBeLessThan(10);
    expect(both).toBeLessThan(400); // every node once, for the first request of a trust set after a change
  },
);
