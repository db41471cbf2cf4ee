import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { RegistryEntry } from '../../../shared/lattice/node.ts';
import { candidatesFor, suspectedFor } from '../../../shared/routing/candidates.ts';
import { NodeIndex } from '../../../shared/routing/nodes.ts';
import { randomPolicy } from '../../../shared/routing/policy.ts';
import { decideTrust } from '../../../shared/routing/trust.ts';
import { entry } from './support.ts';

const ANYBODY = decideTrust({ own: 'local', lists: [], defaults: 'admitted', deleted: new Set(), policies: [] });

const names = (entries: readonly RegistryEntry[]) => entries.map(({ session }) => session).sort();

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
  expect(names(candidatesFor(index.model('m'), new Set(['a']), ANYBODY))).toEqual(['b']);
  expect(names(suspectedFor(index.model('m'), new Set(), ANYBODY))).toEqual(['c']);
  expect(candidatesFor(index.model('unknown'), new Set(), ANYBODY)).toEqual([]);
});

test('choosing one of a thousand nodes takes less than 0.05 ms, and so does a change of one of them', () => {
  const index = new NodeIndex();
  const sessions = Array.from({ length: 1000 }, (_, n) => entry(`s${n}`));
  for (const one of sessions) index.put(one);
  const tried = new Set<string>();
  const time = (act: (round: number) => void) => {
    const rounds = 2_000;
    const startedAt = performance.now();
    for (let round = 0; round < rounds; round++) act(round);
    return (performance.now() - startedAt) / rounds;
  };
  const choose = time(() =>
    randomPolicy.pick(candidatesFor(index.model('m'), tried, ANYBODY), { model: 'm' }, Math.random),
  );
  const change = time((round) => {
    const one = sessions[round % 1000];
    if (one !== undefined) index.put({ ...one, suspected: round % 2 === 0 });
  });
  console.log(`choose ${(choose * 1000).toFixed(2)} µs, change ${(change * 1000).toFixed(2)} µs`);
  expect(choose).toBeLessThan(0.05);
  expect(change).toBeLessThan(0.05);
});
