import { expect, test } from 'vitest';
import { customPolicies } from '../../../examples/policies/leave-ending-jobs.ts';
import type { Candidate } from '../../../shared/routing/candidates.ts';
import { leastLoadPolicy } from '../../../shared/routing/policies/least-load.ts';
import { GPU_WEIGHTS, nodeWeightTable } from '../../../shared/routing/policies/node-weights.ts';
import { openRequests } from '../../../shared/routing/policies/open-requests.ts';
import { guardPolicy } from '../../../shared/routing/policies/operator-policies.ts';
import { prefixAffinity } from '../../../shared/routing/policies/prefix-affinity.ts';
import { randomPolicy } from '../../../shared/routing/policies/random.ts';
import { roundRobin } from '../../../shared/routing/policies/round-robin.ts';
import { weighted } from '../../../shared/routing/policies/weighted.ts';
import type { Policy, RoutedRequest } from '../../../shared/routing/routing-policy.ts';
import { seeded } from '../../sim/random.ts';
import { costBeside } from '../../support/cost.ts';
import { replicas, serve } from './replicas.ts';

const ASKED: RoutedRequest = { model: 'm', priority: 'interactive', inputTokens: 100 };
const nodes = (...some: Partial<Candidate>[]): Candidate[] =>
  some.map((one, n) => ({ session: `s${n}`, provider: 'lab', cluster: 'alps', tier: 'stable', inFlight: 0, ...one }));

function counts(
  policy: Policy,
  candidates: readonly Candidate[],
  requests: number,
  asked: Partial<RoutedRequest> = {},
) {
  const random = seeded(7);
  const chosen = new Map(candidates.map(({ session }) => [session, 0]));
  for (let n = 0; n < requests; n++) {
    const one = policy.pick(candidates, { ...ASKED, ...asked }, random);
    if (one !== undefined) chosen.set(one.session, (chosen.get(one.session) ?? 0) + 1);
  }
  return [...chosen.values()];
}

test('by random a thousand requests on two equal replicas are 50 ± 5 %', () => {
  const [first = 0] = counts(randomPolicy, nodes({}, {}), 1000);
  expect(Math.abs(first - 500)).toBeLessThanOrEqual(50);
});

test('by round-robin each model’s requests are shared exactly, however the models’ requests are mixed', () => {
  const policy = roundRobin();
  const [one, other] = [nodes({}, {}), nodes({}, {}, {})];
  const seen = new Map<string, number>();
  for (let n = 0; n < 3000; n++) {
    const model = n % 3 === 0 ? 'n' : 'm';
    const chosen = policy.pick(model === 'm' ? one : other, { ...ASKED, model }, Math.random);
    const name = `${model} ${chosen?.session}`;
    seen.set(name, (seen.get(name) ?? 0) + 1);
  }
  expect([...seen.values()].sort()).toEqual([1000, 1000, 333, 333, 334].sort());
});

test('by round-robin two keys that see different nodes and ask by turns do not draw the same ones for ever', () => {
  const policy = roundRobin();
  const [all, few] = [nodes({}, {}), nodes({})];
  const seen = new Set<string | undefined>();
  for (let n = 0; n < 10; n++) {
    seen.add(policy.pick(all, ASKED, Math.random)?.session);
    policy.pick(few, ASKED, Math.random);
  }
  expect(seen.size).toBe(2);
});

test('no policy has anything to choose from nothing, and all of them choose the only one', () => {
  const [only] = nodes({});
  for (const policy of [randomPolicy, roundRobin(), leastLoadPolicy, prefixAffinity(), weighted(() => GPU_WEIGHTS)]) {
    expect(policy.pick([], ASKED, Math.random)).toBeUndefined();
    expect(policy.pick([], { ...ASKED, session: 'x' }, Math.random)).toBeUndefined();
    expect(policy.pick(only === undefined ? [] : [only], { ...ASKED, session: 'x' }, () => 0.999)).toBe(only);
  }
});

test('weights by GPU class follow what the GPUs can do, and their number', () => {
  const [h100 = 0, l4 = 0, two = 0] = counts(
    weighted(() => GPU_WEIGHTS),
    nodes({ gpu: 'H100', gpus: 1 }, { gpu: 'L4', gpus: 1 }, { gpu: 'H100', gpus: 2 }),
    1035,
  );
  expect([h100, l4, two].map((n) => Math.round(n / 10))).toEqual([34, 3, 67].map((n) => expect.closeTo(n, -0.5)));
  expect(h100 + l4 + two).toBe(1035);
});

test('weights by rule are kept within a few requests of any thousand; what no rule names gets nothing', () => {
  const weights = nodeWeightTable([
    { cluster: 'alps', weight: 1 },
    { cluster: 'alps', gpu: 'H100', weight: 3 },
    { session: 's2', weight: 6 },
  ]);
  const some = nodes({}, { gpu: 'H100' }, { cluster: 'elsewhere' }, { cluster: 'elsewhere' });
  const given = counts(
    weighted(() => weights),
    some,
    1000,
  );
  [100, 300, 600, 0].forEach((wanted, at) => {
    expect(Math.abs((given[at] ?? 0) - wanted)).toBeLessThanOrEqual(5);
  });
});

test('a rule may be for one class of requests; of two that fit, the one that says more counts', () => {
  const weights = nodeWeightTable([
    { weight: 1 },
    { session: 's0', class: 'long', weight: 0 },
    { session: 's1', class: 'batch', weight: 0 },
  ]);
  const some = nodes({}, {});
  const policy = weighted(() => weights);
  expect(counts(policy, some, 100, { inputTokens: 9000 })).toEqual([0, 100]);
  expect(counts(policy, some, 100, { priority: 'batch' })).toEqual([100, 0]);
  for (const n of counts(policy, some, 100)) expect(n).toBeGreaterThan(45);
});

test('a rule may be for one kind of requests; a request without a kind goes by the rules without one', () => {
  const weights = nodeWeightTable([
    { session: 's0', kind: 'chat', weight: 1 },
    { session: 's1', kind: 'chat', weight: 0 },
    { session: 's1', kind: 'document', weight: 1 },
    { session: 's0', weight: 3 },
    { session: 's1', weight: 1 },
  ]);
  const some = nodes({}, {});
  const policy = weighted(() => weights);
  expect(counts(policy, some, 100, { kind: 'chat' })).toEqual([100, 0]);
  const [first = 0] = counts(policy, some, 1000, { kind: 'document' });
  expect(Math.abs(first - 750)).toBeLessThanOrEqual(5);
  const [other = 0] = counts(policy, some, 1000);
  expect(Math.abs(other - 750)).toBeLessThanOrEqual(5);
});

test('of nodes with one weight the less busy gets more, and what nodes of other weights get stays', () => {
  const weights = nodeWeightTable([{ session: 's2', weight: 2 }, { weight: 1 }]);
  const some = nodes({ inFlight: 9 }, {}, { inFlight: 20 });
  const [queued = 0, free = 0, other = 0] = counts(
    weighted(() => weights),
    some,
    1000,
  );
  expect(queued).toBeLessThan(free);
  expect(Math.abs(other - 500)).toBeLessThanOrEqual(5);
});

test('where every weight is nought the request is served all the same', () => {
  const given = counts(
    weighted(() => nodeWeightTable([{ cluster: 'gone', weight: 1 }])),
    nodes({}, {}),
    100,
  );
  for (const n of given) expect(n).toBeGreaterThan(40);
});

test('what is known of a load grows and falls with what went there and came back since', () => {
  const load = { running: 4, waiting: 1, at: 0 };
  const [of] = nodes({ load, inFlight: 3, inFlightThen: 2 });
  const [less] = nodes({ load, inFlight: 0, inFlightThen: 2 });
  const [unknown] = nodes({ inFlight: 2 });
  const [more] = nodes({ load: { running: 0, waiting: 0, at: 0 }, inFlight: 3, inFlightThen: 3 });
  expect([of, less, unknown, more].map((one) => one && openRequests(one))).toEqual([7, 4, 2, 3]);
});

test('of two nodes least-load takes the one with less to do, of equals the one with more room in its cache', () => {
  const busy = { running: 9, waiting: 0, at: 0 };
  const pick = (...some: Partial<Candidate>[]) => counts(leastLoadPolicy, nodes(...some), 50);
  expect(pick({ load: busy }, {})).toEqual([0, 50]);
  expect(pick({ load: { ...busy, kvUse: 0.9 } }, { load: { ...busy, kvUse: 0.2 } })).toEqual([0, 50]);
});

test('a replica that is four times slower gets less by least-load than by random, and the 95th percentile falls', () => {
  const run = (policy: Policy) => serve(policy, replicas([1, 1, 1, 4]), { requests: 4000, load: 0.7, seed: 3 });
  const [even, least] = [run(randomPolicy), run(leastLoadPolicy)];
  console.log(
    `one of four replicas 4x slower, 70 % load: random gives it ${percent(even.shares[3])}, p95 ${even.p95.toFixed(1)} s; ` +
      `least-load ${percent(least.shares[3])}, p95 ${least.p95.toFixed(1)} s (a request alone takes 1 s, there 4 s)`,
  );
  expect(least.shares[3]).toBeLessThan(0.6 * (even.shares[3] ?? 0));
  expect(least.p95).toBeLessThan(0.6 * even.p95);
});

test('prefix-affinity keeps 95 % of the turns of conversations on their nodes at equal load', () => {
  const policy = prefixAffinity();
  const { kept, imbalance } = serve(policy, replicas(Array.from({ length: 8 }, () => 1)), {
    requests: 8000,
    load: 0.6,
    seed: 5,
    conversations: 200,
  });
  console.log(
    `prefix-affinity: ${percent(kept)} of turns at their conversation's node, busiest ${imbalance.toFixed(2)} times the mean`,
  );
  expect(kept).toBeGreaterThanOrEqual(0.95);
});

test('under a hot prefix no node has more than 1.25 times the mean', () => {
  const hot = serve(prefixAffinity(), replicas(Array.from({ length: 8 }, () => 1)), {
    requests: 8000,
    load: 0.8,
    seed: 5,
    prefix: 42,
  });
  console.log(`a hot prefix: busiest node ${hot.imbalance.toFixed(2)} times the mean`);
  expect(hot.imbalance).toBeLessThanOrEqual(1.25);
});

test('the example of an own policy leaves nodes alone whose job ends soon, while there are others', () => {
  const now = Date.now();
  const some = nodes({ jobEndsAt: now + 60_000 }, { jobEndsAt: now + 3_600_000 }, { inFlight: 1 });
  const [policy] = customPolicies;
  if (policy === undefined) throw new Error('no example');
  const asked = guardPolicy(policy, {
    fallback: leastLoadPolicy,
    now: () => 0,
    cpuMs: () => 0,
    onFault: (_, why) => expect.fail(why),
  });
  expect(counts(asked, some, 50)[0]).toBe(0);
  expect(counts(asked, some.slice(0, 1), 5)).toEqual([5]);
});

test('two isolates that never heard of each other send a conversation to the same node', () => {
  const some = nodes(...Array.from({ length: 20 }, () => ({})));
  const [here, there] = [prefixAffinity(), prefixAffinity()];
  for (let n = 0; n < 100; n++) {
    const asked = { ...ASKED, session: `p/${n}` };
    expect(there.pick([...some].reverse(), asked, Math.random)).toBe(here.pick(some, asked, Math.random));
  }
});

test('when a node goes only its own conversations move', () => {
  const some = nodes(...Array.from({ length: 10 }, () => ({})));
  const homes = Array.from({ length: 500 }, (_, n) =>
    prefixAffinity().pick(some, { ...ASKED, session: `${n}` }, Math.random),
  );
  const left = some.slice(1);
  homes.forEach((home, n) => {
    const now = prefixAffinity().pick(left, { ...ASKED, session: `${n}` }, Math.random);
    if (home !== some[0]) expect(now).toBe(home);
  });
});

test('of a thousand nodes, too, conversations get even shares, isolates agree, and those of a lost node move', () => {
  const some = nodes(...Array.from({ length: 1_000 }, (_, n) => ({ session: `node${n}` })));
  const homesIn = (list: readonly Candidate[]) => {
    const policy = prefixAffinity();
    return Array.from({ length: 20_000 }, (_, n) => policy.pick(list, { ...ASKED, session: `${n}` }, Math.random));
  };
  const homes = homesIn(some);
  expect(homesIn([...some].reverse())).toEqual(homes);
  const shares = [...Map.groupBy(homes, (home) => home?.session).values()].map(({ length }) => length);
  expect(shares.length).toBe(1_000);
  expect(Math.max(...shares)).toBeLessThan(2 * 20);
  const [lost] = some;
  const moved = homesIn(some.slice(1)).filter((home, n) => homes[n] !== lost && home !== homes[n]);
  // The next node enters the windows of the lost node, and wins a 64th of their conversations.
  expect(moved.length).toBeLessThan(20_000 / 500);
});

test('choosing among 10,000 nodes does not look at each of them, with and without a conversation', () => {
  const listOf = (length: number) =>
    nodes(...Array.from({ length }, (_, n) => ({ session: `node${n}`, load: { running: n % 9, waiting: 0, at: 0 } })));
  const [few, many] = [listOf(10), listOf(10_000)];
  for (const [policy, conversation] of [
    [leastLoadPolicy, undefined],
    [prefixAffinity(), 'c'],
  ] as const) {
    const rounds = (list: readonly Candidate[]) => () => {
      for (let n = 0; n < 5_000; n++) {
        const asked = conversation === undefined ? ASKED : { ...ASKED, session: `${conversation}${n % 50}` };
        const one = policy.pick(list, asked, Math.random);
        if (one === undefined) throw new Error('no node');
        policy.onRequestStart(one, asked);
        policy.onRequestEnd(one, asked, 'complete');
      }
    };
    // A look at each node would cost some hundred times as much as among ten.
    expect(costBeside(rounds(many), rounds(few)), policy.name).toBeLessThan(30);
  }
});

test('choosing among a thousand costs a few looks at each node, by every policy', () => {
  const some = nodes(
    ...Array.from({ length: 1000 }, (_, n) => ({ session: `node${n}`, load: { running: n % 9, waiting: 0, at: 0 } })),
  );
  const weights = nodeWeightTable(some.map(({ session }, n) => ({ session, weight: n % 5 })));
  const policies = [randomPolicy, roundRobin(), leastLoadPolicy, prefixAffinity(), weighted(() => weights)];
  const rounds = (act: (n: number) => unknown) => () => {
    for (let n = 0; n < 500; n++) act(n);
  };
  const walk = rounds(() => some.reduce((sum, { session }) => sum + session.length, 0));
  for (const policy of policies) {
    const pick = rounds((n) => policy.pick(some, { ...ASKED, session: `c${n % 50}` }, Math.random));
    const walks = costBeside(pick, walk);
    expect(walks, policy.name).toBeLessThan(100);
  }
});

function percent(share: number | undefined): string {
  return `${(100 * (share ?? 0)).toFixed(1)} %`;
}
