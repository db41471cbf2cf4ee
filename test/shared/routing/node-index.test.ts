import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { type Candidate, candidatePool, NO_REQUIREMENTS, withoutTried } from '../../../shared/routing/candidates.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { randomPolicy } from '../../../shared/routing/policies/random.ts';
import { parseRequirements } from '../../../shared/routing/requirements.ts';
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

test('after any changes the remembered candidates are those of a new index, and a list that was read stays as it was', () => {
  const picky = decideTrust({ ...NOBODY_SAYS, lists: [['lab']] });
  const demands = [
    NO_REQUIREMENTS,
    { require: parseRequirements('tier=stable'), prefer: [], words: 'tier=stable' },
    { require: [], prefer: parseRequirements('tier=stable, gpu=H100'), words: 'prefer' },
    { require: parseRequirements('time_left>=1h'), prefer: [], words: 'time_left>=1h' },
  ];
  const gpu = { class: 'H100', name: 'H100', vram_mib: 81_920, count: 1 };
  const change = fc.record({
    session: fc.constantFrom('a', 'b', 'c', 'd', 'e'),
    gone: fc.boolean(),
    suspected: fc.boolean(),
    provider: fc.constantFrom('lab', 'eth'),
    tier: fc.constantFrom('stable', 'volatile'),
    gpus: fc.array(fc.constant(gpu), { maxLength: 1 }),
    ends_at: fc.constantFrom('1970-01-01T00:30:00Z', '1970-01-01T03:00:00Z'),
    /** Changes between two requests; a thousand are more than an index remembers. */
    times: fc.constantFrom(1, 1, 1, 2, 1_100),
    asks: fc.boolean(),
  });
  fc.assert(
    fc.property(fc.array(change, { maxLength: 20 }), (changes) => {
      const index = new NodeIndex();
      const read: [readonly Candidate[], readonly Candidate[]][] = [];
      for (const { session, gone, times, asks, ends_at, gpus, ...more } of changes) {
        const facts = { hardware: { gpus, cpus: 1, memory_mib: 1 }, job: { id: '1', ends_at } };
        for (let n = 0; n < times; n++) {
          if (gone) index.delete(session);
          else index.put(entry(session, { ...more, ...facts }));
        }
        if (!asks) continue;
        const fresh = new NodeIndex();
        for (const one of index.entries()) fresh.put(one);
        for (const trust of [ANYBODY, picky])
          for (const demand of demands) {
            const [now, then] = [index, fresh].map((one) => candidatePool(one.model('m'), trust, demand, 0));
            for (const list of ['ready', 'preferred', 'suspected'] as const) {
              expect(shown(now?.[list])).toEqual(shown(then?.[list]));
              if (now !== undefined) read.push([now[list], [...now[list]]]);
            }
          }
      }
      for (const [list, before] of read) expect(list).toEqual(before);
    }),
  );
});

const shown = (list: readonly Candidate[] = []) =>
  list.map(({ session, tier, gpu, jobEndsAt }) => `${session} ${tier} ${gpu} ${jobEndsAt}`).sort();

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
    expect(both).toBeLessThan(20); // the lists are patched: a request after a change does not look at every node
  },
);
