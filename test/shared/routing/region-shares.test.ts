import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { RegistryEntry } from '../../../shared/lattice/node-record.ts';
import { readRequirements } from '../../../shared/proxy/read-requirements.ts';
import type { Candidate } from '../../../shared/routing/candidates.ts';
import { chooseNode } from '../../../shared/routing/choose-node.ts';
import { NodeIndex } from '../../../shared/routing/node-index.ts';
import { RegionShares } from '../../../shared/routing/policies/by-region.ts';
import { leastLoadPolicy } from '../../../shared/routing/policies/least-load.ts';
import { randomPolicy } from '../../../shared/routing/policies/random.ts';
import { roundRobin } from '../../../shared/routing/policies/round-robin.ts';
import {
  availableWeights,
  ingressShares,
  type ModelShares,
  modelShares,
  PLAN_HOLDS_MAX_MS,
} from '../../../shared/routing/region-shares.ts';
import { buildRequirement, satisfies } from '../../../shared/routing/requirements.ts';
import { decideTrust, isTrusted } from '../../../shared/routing/trusted-providers.ts';
import { entry } from './support.ts';

const NOW = Date.parse('2026-01-01T00:00:05.000Z');
const REQUEST = { model: 'm', priority: 'interactive' as const, inputTokens: 1 };
const PLACES = ['near', 'middle', 'far'];

function node(session: string, region: string | undefined, waiting?: number): Candidate {
  const load = waiting === undefined ? {} : { load: { at: 0, running: 0, waiting } };
  return { session, provider: 'lab', cluster: 'c', tier: 'stable', inFlight: 0, region, ...load };
}

/** Requests that each region got, of `requests`. */
function counts(shares: ModelShares, nodes: readonly Candidate[], requests = 1_000, inner = leastLoadPolicy) {
  const policy = new RegionShares().wrap(inner, shares);
  const got: Record<string, number> = {};
  for (let n = 0; n < requests; n++) {
    const region = policy.pick(nodes, REQUEST, Math.random)?.region ?? '';
    got[region] = (got[region] ?? 0) + 1;
  }
  return got;
}

const THREE = PLACES.flatMap((region) => [node(`${region} 1`, region), node(`${region} 2`, region)]);

test('regions get their shares for any number of nodes', () => {
  const nodes = [...THREE, ...Array.from({ length: 20 }, (_, n) => node(`more ${n}`, 'far'))];
  const got = counts({ shares: { near: 0.5, middle: 0.3, far: 0.2 } }, nodes);
  for (const [region, share] of [
    ['near', 0.5],
    ['middle', 0.3],
    ['far', 0.2],
  ] as const)
    expect(Math.abs((got[region] ?? 0) / 1_000 - share)).toBeLessThan(0.01);
});

test('the work of a lost region goes where the plan says, and without a word of it to the others in proportion', () => {
  const left = THREE.filter(({ region }) => region !== 'middle');
  const shares = { near: 0.1, middle: 0.5, far: 0.4 };
  const spread = counts({ shares, spill: { middle: { far: 0.2, near: 0.8 } } }, left);
  expect((spread.near ?? 0) / 1_000).toBeCloseTo(0.5, 1);
  expect((spread.far ?? 0) / 1_000).toBeCloseTo(0.5, 1);
  expect((counts({ shares }, left).near ?? 0) / 1_000).toBeCloseTo(0.2, 1);
  // If the region that the plan assigns the work to is lost as well, the work goes to the remaining region.
  expect(counts({ shares, spill: { middle: { far: 1 } } }, [node('n', 'near')], 10)).toEqual({ near: 10 });
});

test('where the plan says nothing of any region that is there, the policy chooses as if there were none', () => {
  expect(counts({ shares: { moon: 1 } }, [node('a', 'near')], 3)).toEqual({ near: 3 });
  expect(counts({ shares: {} }, [node('a', undefined)], 3)).toEqual({ '': 3 });
});

test('a region that has a queue gives to others of the plan that have none', () => {
  const nodes = [node('a', 'near', 5), node('b', 'middle', 0), node('c', 'far', 0)];
  expect(counts({ shares: { near: 1 }, spill: { near: { far: 1 } } }, nodes, 5)).toEqual({ far: 5 });
  const full = nodes.map((one) => node(one.session, one.region, 3));
  expect(counts({ shares: { near: 1 }, spill: { near: { far: 1 } } }, full, 5)).toEqual({ near: 5 });
});

test('a conversation keeps its region, and a small change of shares moves few of them', () => {
  const policy = (near: number) => new RegionShares().wrap(randomPolicy, { shares: { near, far: 1 - near } });
  const [before, after] = [policy(0.5), policy(0.45)];
  let moved = 0;
  for (let n = 0; n < 1_000; n++) {
    const request = { ...REQUEST, session: `p ${n}` };
    const region = before.pick(THREE, request, Math.random)?.region;
    expect(before.pick(THREE, request, Math.random)?.region).toBe(region);
    if (after.pick(THREE, request, Math.random)?.region !== region) moved++;
  }
  expect(moved).toBeGreaterThan(10);
  expect(moved).toBeLessThan(100);
});

test('a plan is over when its time is, and so is one whose clock was set back', () => {
  const plan = { planner: 'p', sequence: 1, expires_at: NOW, models: { m: { shares: { near: 1 } } } };
  expect(modelShares(plan, 'm', NOW - 1)).toBe(plan.models.m);
  expect(modelShares(plan, 'm', NOW)).toBeUndefined();
  expect(modelShares(plan, 'm', NOW - PLAN_HOLDS_MAX_MS - 1)).toBeUndefined();
  expect(modelShares(plan, 'constructor', NOW - 1)).toBeUndefined();
});

test('a region with a row of its own has its shares, and all others have the shares of the model', () => {
  const origins = { ch: { shares: { near: 1 } } };
  const plan = { planner: 'p', sequence: 1, expires_at: NOW, models: { m: { shares: { far: 1 }, origins } } };
  const sharesIn = (origin: string | undefined) => modelShares(plan, 'm', NOW - 1, origin)?.shares;
  expect(sharesIn('ch')).toEqual({ near: 1 });
  for (const origin of [undefined, '', 'fi', 'constructor', '__proto__']) expect(sharesIn(origin)).toEqual({ far: 1 });
  expect(modelShares(plan, 'm', NOW, 'ch')).toBeUndefined();
});

test('an ingress gets the shares of its region for the rest of their time, and no more than it can read', () => {
  const one = { shares: { near: 1 }, origins: { ch: { shares: { far: 1 }, spill: {} } } };
  const plan = { planner: 'p', sequence: 1, expires_at: NOW, models: { m: one } };
  expect(ingressShares(plan, 'ch', NOW - 5_000)).toEqual({
    holds_ms: 5_000,
    models: { m: { shares: { far: 1 }, spill: {} } },
  });
  expect(ingressShares(plan, '', NOW - 5_000)?.models).toEqual({ m: { shares: { near: 1 } } });
  expect(ingressShares(plan, 'ch', NOW)).toBeUndefined();
  expect(ingressShares(undefined, 'ch', NOW)).toBeUndefined();
  const shares = Object.fromEntries(Array.from({ length: 64 }, (_, n) => [`region-${n}`, 1 / 64]));
  const models = Object.fromEntries(Array.from({ length: 500 }, (_, n) => [`org/model-${n}`, { shares }]));
  const most = ingressShares({ ...plan, models }, 'ch', NOW - 5_000);
  expect(JSON.stringify(most).length).toBeLessThan(34 * 1024);
  expect(Object.keys(most?.models ?? {}).length).toBeGreaterThan(5);
});

const number = fc.oneof(fc.double({ min: 0, max: 1, noNaN: true }), fc.constantFrom(-1, Number.NaN, Infinity, 1e308));
const region = fc.constantFrom(...PLACES, '', 'moon', '__proto__', 'constructor');
const record = fc.dictionary(region, number);
const plan: fc.Arbitrary<ModelShares> = fc.record({
  shares: record,
  spill: fc.option(fc.dictionary(region, record), { nil: undefined }),
});

test('a share is spread for any numbers in its spill', () => {
  const spill = { lost: { near: 1e308, middle: 1e308 } };
  expect([...availableWeights({ shares: { lost: 0.5, near: 0.5 }, spill }, ['middle', 'near'])]).toEqual([0.25, 0.75]);
});

test('weights are finite and add up to the shares of the plan, whichever nodes are lost', () => {
  fc.assert(
    fc.property(plan, fc.uniqueArray(region, { minLength: 1 }), (one, present) => {
      fc.pre(Object.values(one.shares).every((share) => share <= 1));
      const weights = availableWeights(one, present);
      expect(weights.every((weight) => Number.isFinite(weight) && weight >= 0)).toBe(true);
      const all = Object.values(one.shares).reduce((sum, share) => sum + Math.max(share, 0), 0);
      const total = weights.reduce((sum, weight) => sum + weight, 0);
      if (present.some((name) => (Object.hasOwn(one.shares, name) ? (one.shares[name] ?? 0) : 0) > 0))
        expect(total).toBeCloseTo(all, 9);
    }),
  );
});

const PROVIDERS = ['eth', 'psi'];
const nodes = fc.array(
  fc.record({
    provider: fc.constantFrom(...PROVIDERS),
    region: fc.option(fc.constantFrom(...PLACES), { nil: undefined }),
    tier: fc.constantFrom('stable' as const, 'volatile' as const),
    suspected: fc.boolean(),
  }),
  { maxLength: 8 },
);
const wanted = fc.record({
  lists: fc.array(fc.subarray(PROVIDERS), { maxLength: 2 }),
  regions: fc.option(fc.subarray(PLACES), { nil: undefined }),
  tiers: fc.option(fc.subarray(['stable', 'volatile']), { nil: undefined }),
  require: fc.option(fc.constantFrom(...PLACES), { nil: undefined }),
});

test('no plan ever sends a request where trust, residency or requirements forbid it, nor refuses one that could be served', () => {
  const shares = new RegionShares();
  fc.assert(
    fc.property(
      plan,
      nodes,
      wanted,
      fc.constantFrom(leastLoadPolicy, roundRobin()),
      fc.option(fc.string(), { nil: undefined }),
      (one, all, { lists, regions, tiers, require }, inner, session) => {
        const index = new NodeIndex();
        const entries = all.map((more, n): RegistryEntry => {
          const { region: place, ...rest } = more;
          return entry(`n${n}`, { ...rest, ...(place === undefined ? {} : { region: place }) });
        });
        for (const each of entries) index.put(each);
        const trust = decideTrust({
          own: 'local',
          lists,
          defaults: 'admitted',
          deleted: new Set(),
          policies: [{ regions, tiers }],
        });
        const words = require === undefined ? '' : `region=${require}`;
        const asked = (policyFor: Parameters<typeof chooseNode>[1]['policyFor']) =>
          chooseNode(
            index,
            {
              request: { ...REQUEST, session },
              fallbacks: [],
              trust,
              demand: readRequirements((name) => (name === 'x-otela-require' && words !== '' ? words : null), {}),
              policyFor,
              lostLatelyMs: 10_000,
              now: NOW,
              random: Math.random,
            },
            new Set(),
          );
        const chosen = asked(() => shares.wrap(inner, one));
        expect(chosen === undefined).toBe(asked(() => inner) === undefined);
        if (chosen === undefined) return;
        const there = entries.find(({ session: id }) => id === chosen.node.session);
        expect(there !== undefined && isTrusted(trust, there)).toBe(true);
        if (regions !== undefined) expect(regions).toContain(chosen.node.region);
        if (require !== undefined && there !== undefined)
          expect(satisfies(there, [buildRequirement('region', '=', require)], 'm', NOW)).toBe(true);
      },
    ),
    { numRuns: 2_000 },
  );
});
