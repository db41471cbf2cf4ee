import fc from 'fast-check';
import { expect, test } from 'vitest';
import { candidatePool, NO_REQUIREMENTS, withoutTried } from '../../../shared/routing/candidates.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import {
  decideTrust,
  isTrusted,
  PROVIDER_ID_PATTERN,
  PROVIDER_LIST_MAX,
  providerId,
  readProviderList,
  type Trust,
  type TrustedNode,
  type TrustInput,
  trustsNobody,
} from '../../../shared/routing/trusted-providers.ts';
import { entry } from './support.ts';

/** Few names, so that lists and nodes match; the peers' names are also provider names. */
const NAMES = ['eth', 'psi', 'lab'];
const PEERS = ['eth', 'cern'];
const id = fc.constantFrom(
  ...NAMES,
  ...NAMES.flatMap((name) => PEERS.map((peer) => `${name}@${peer}`)),
  ...NAMES.map((name) => `${name}@local`),
);
const list = fc.option(fc.array(id, { maxLength: 6 }), { nil: undefined });
const REGIONS = ['ch', 'de'];
const TIERS = ['stable', 'volatile'];
const policy = fc.option(
  fc.record({
    regions: fc.option(fc.subarray(REGIONS), { nil: undefined }),
    tiers: fc.option(fc.subarray(TIERS), { nil: undefined }),
  }),
  { nil: undefined },
);
const node: fc.Arbitrary<TrustedNode> = fc
  .record({
    name: fc.constantFrom(...NAMES),
    issuer: fc.constantFrom('local', ...PEERS),
    full: fc.boolean(),
    region: fc.option(fc.constantFrom(...REGIONS), { nil: undefined }),
    tier: fc.constantFrom(...TIERS),
  })
  .map(({ name, issuer, full, region, tier }) => ({
    provider: full && issuer !== 'local' ? `${name}@${issuer}` : name,
    issuer,
    region,
    tier,
  }));
const question: fc.Arbitrary<TrustInput> = fc.record({
  own: fc.constant('local'),
  lists: fc.array(list, { maxLength: 3 }),
  defaults: fc.oneof(fc.constant('admitted' as const), fc.array(id, { maxLength: 4 })),
  deleted: fc.array(id, { maxLength: 2 }).map((ids) => new Set(ids.map(plain))),
  policies: fc.array(policy, { maxLength: 2 }),
});

function plain(text: string): string {
  return text.replace(/@local$/, '');
}

/** What the product promises, written without the code's sets. */
function promised({ lists, defaults, deleted, policies }: TrustInput, { provider, issuer, region, tier }: TrustedNode) {
  const name = provider.split('@')[0] ?? '';
  const own = issuer === 'local';
  const known = own ? name : `${name}@${issuer}`;
  const named = (ids: readonly string[]) => ids.includes(known) || (own && ids.includes(`${name}@local`));
  let speaks = false;
  for (const ids of lists) {
    if (ids === undefined) continue;
    speaks = true;
    if (!named(ids)) return false;
  }
  if (!speaks && !(defaults === 'admitted' ? own : named(defaults))) return false;
  if (deleted.has(known)) return false;
  for (const rule of policies) {
    if (rule?.regions !== undefined && (region === undefined || !rule.regions.includes(region))) return false;
    if (rule?.tiers !== undefined && !rule.tiers.includes(tier)) return false;
  }
  return true;
}

const RUNS = { numRuns: 3_000 };

test('a node may see a request exactly when every list names its provider and every policy its place', () => {
  fc.assert(
    fc.property(question, node, (asked, one) => {
      expect(isTrusted(decideTrust(asked), one)).toBe(promised(asked, one));
    }),
    RUNS,
  );
});

test('one more list, policy or deletion never lets a node in that was out, unless no list spoke before', () => {
  const allowed = (asked: TrustInput, one: TrustedNode) => isTrusted(decideTrust(asked), one);
  fc.assert(
    fc.property(question, node, fc.array(id, { maxLength: 4 }), policy, id, (asked, one, ids, rule, gone) => {
      const speaks = asked.lists.some((given) => given !== undefined);
      const before = allowed(asked, one);
      if (speaks && !before) expect(allowed({ ...asked, lists: [...asked.lists, ids] }, one)).toBe(false);
      if (!before) expect(allowed({ ...asked, policies: [...asked.policies, rule] }, one)).toBe(false);
      const deleted = new Set([...asked.deleted, plain(gone)]);
      if (!before) expect(allowed({ ...asked, deleted }, one)).toBe(false);
    }),
    RUNS,
  );
});

test('the order of lists and repeated ids change nothing', () => {
  const seen = ({ providers, regions, tiers }: Trust) => ({
    providers: providers === 'admitted' ? providers : [...providers].sort(),
    regions: regions && [...regions].sort(),
    tiers: tiers && [...tiers].sort(),
  });
  fc.assert(
    fc.property(question, (asked) => {
      const turned = {
        ...asked,
        lists: asked.lists.map((ids) => ids && [...ids, ...ids].reverse()).reverse(),
        policies: asked.policies.toReversed(),
      };
      expect(seen(decideTrust(turned))).toEqual(seen(decideTrust(asked)));
    }),
    RUNS,
  );
});

test('a key that trusts no provider gets no node', () => {
  fc.assert(
    fc.property(question, node, (asked, one) => {
      const trust = decideTrust(asked);
      fc.pre(trustsNobody(trust));
      expect(isTrusted(trust, one)).toBe(false);
    }),
    RUNS,
  );
  const plainly = { own: 'local', defaults: 'admitted' as const, deleted: new Set<string>(), policies: [] };
  expect(trustsNobody(decideTrust({ ...plainly, lists: [] }))).toBe(false);
  expect(trustsNobody(decideTrust({ ...plainly, lists: [[]] }))).toBe(true);
  expect(trustsNobody(decideTrust({ ...plainly, lists: [['a'], ['b']] }))).toBe(true);
  expect(trustsNobody(decideTrust({ ...plainly, lists: [['a']], deleted: new Set(['a']) }))).toBe(true);
  expect(trustsNobody(decideTrust({ ...plainly, lists: [undefined, ['a']] }))).toBe(false);
});

test('a peer cannot take the name of a provider here, nor of another peer', () => {
  const trust = decideTrust({
    own: 'local',
    lists: [['eth', 'lab@cern']],
    defaults: 'admitted',
    deleted: new Set(),
    policies: [],
  });
  const at = (provider: string, issuer: string) => isTrusted(trust, { provider, issuer, tier: 'stable' });
  expect(at('eth', 'local')).toBe(true);
  expect(at('eth', 'cern')).toBe(false);
  expect(at('lab', 'cern')).toBe(true);
  expect(at('lab@cern', 'cern')).toBe(true);
  // `desy` issues a ticket for a provider that it calls `lab@cern`.
  expect(at('lab@cern', 'desy')).toBe(false);
  expect(at('lab', 'local')).toBe(false);
  expect(providerId({ provider: 'lab@cern', issuer: 'desy' }, 'local')).toBe('lab@cern@desy');
});

test('a list in a request is read as people write it, and refused if it is not a list', () => {
  expect(readProviderList('a, b@eth')).toEqual(['a', 'b@eth']);
  expect(readProviderList('a,b,,a , ')).toEqual(['a', 'b']);
  expect(readProviderList('')).toEqual([]);
  expect(readProviderList(' , ')).toEqual([]);
  for (const text of ['A', 'a b', '*', 'a;b', 'a@b@c', '@b', "a' OR 1=1", 'a\r\nx: y', 'x'.repeat(64)]) {
    expect(readProviderList(text), text).toBeUndefined();
  }
  const ids = (count: number) => Array.from({ length: count }, (_, n) => `p${n}`).join(',');
  expect(readProviderList(ids(PROVIDER_LIST_MAX))).toHaveLength(PROVIDER_LIST_MAX);
  expect(readProviderList(ids(PROVIDER_LIST_MAX + 1))).toBeUndefined();
  fc.assert(
    fc.property(fc.string(), (text) => {
      for (const one of readProviderList(text) ?? []) expect(one).toMatch(PROVIDER_ID_PATTERN);
    }),
  );
});

test('no candidate is ever outside the set, tried before, or left out for nothing', () => {
  const nodes = fc.array(fc.record({ node, suspected: fc.boolean() }), { maxLength: 12 });
  fc.assert(
    fc.property(question, nodes, fc.array(fc.nat(11)), (asked, some, before) => {
      const index = new NodeIndex();
      some.forEach(({ node: { provider, issuer, region, tier }, suspected }, n) => {
        const sort = tier === 'stable' ? ('stable' as const) : ('volatile' as const);
        const place = { ...(region !== undefined && { region }), tier: sort };
        index.put(entry(`s${n}`, { provider, issuer, ...place, suspected }));
      });
      const tried = new Set(before.map((n) => `s${n}`));
      const trust = decideTrust(asked);
      const pool = candidatePool(index.model('m'), trust, NO_REQUIREMENTS, 0);
      for (const [suspected, list] of [
        [false, pool.ready],
        [true, pool.suspected],
      ] as const) {
        const expected = some.flatMap((one, n) => {
          const open = one.suspected === suspected && !tried.has(`s${n}`);
          return open && promised(asked, one.node) ? [`s${n}`] : [];
        });
        const chosen = withoutTried(list, tried).map(({ session }) => session);
        expect(chosen.sort()).toEqual(expected.sort());
      }
    }),
    RUNS,
  );
});
