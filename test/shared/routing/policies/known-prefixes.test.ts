/** Conversations without a name are recognized by the beginnings of their prompts. */
import { expect, test } from 'vitest';
import { routedRequest } from '../../../../shared/proxy/policy-input.ts';
import type { Candidate } from '../../../../shared/routing/candidates.ts';
import { prefixAffinity } from '../../../../shared/routing/policies/prefix-affinity.ts';
import type { RoutedRequest } from '../../../../shared/routing/routing-policy.ts';
import { fnv1aOfBeginnings, fnv1aOfBytes } from '../../../../shared/text/hash.ts';

const KIB = 1024;

function asked(prompt: string, model = 'm'): RoutedRequest {
  const bytes = new TextEncoder().encode(prompt);
  return routedRequest(
    () => undefined,
    { body: { kind: 'kept', bytes }, streaming: false, metadata: {} } as never,
    model,
    'p',
  );
}

const nodes = (count: number): (Candidate & { inFlight: number })[] =>
  Array.from({ length: count }, (_, n) => ({
    ...{ session: `s${n}`, provider: 'lab', cluster: 'alps', tier: 'stable' },
    inFlight: 0,
  }));

test('a prompt has a hash for each beginning of 4 to 64 KiB that it is long enough for', () => {
  const counts = [100, KIB, 4 * KIB - 1, 4 * KIB, 9 * KIB, 64 * KIB, 300 * KIB].map(
    (length) => asked('x'.repeat(length)).longerPrefixes?.length,
  );
  expect(counts).toEqual([undefined, undefined, undefined, 1, 2, 5, 5]);
  expect(asked('y'.repeat(5 * KIB)).longerPrefixes).not.toEqual(asked('x'.repeat(5 * KIB)).longerPrefixes);
  const bytes = new TextEncoder().encode('grüezi mitenand');
  expect(fnv1aOfBeginnings(bytes, [3, 7, 99])).toEqual([fnv1aOfBytes(bytes, 3), fnv1aOfBytes(bytes, 7)]);
});

test('the next turn goes to the node of the turn before, though all prompts share their first KiB', () => {
  const policy = prefixAffinity();
  const some = nodes(8);
  const system = 's'.repeat(2 * KIB);
  const homes = new Map<number, string>();
  const turn = (conversation: number, length: number) => {
    const request = asked(`${system}${String(conversation).repeat(length)}`);
    const chosen = policy.pick(some, request, () => 0.5);
    if (chosen === undefined) throw new Error('no node');
    policy.onRequestStart(chosen, request);
    return chosen.session;
  };
  for (let n = 1; n <= 9; n++) {
    // The first turns run concurrently, so they are spread.
    const session = turn(n, 4 * KIB);
    homes.set(n, session);
    for (const one of some) if (one.session === session) one.inFlight++;
  }
  expect(new Set(homes.values()).size).toBeGreaterThan(3);
  for (const one of some) one.inFlight = 0;
  for (let n = 1; n <= 9; n++) for (const kib of [7, 12, 40]) expect(turn(n, kib * KIB)).toBe(homes.get(n));
});

test('a recognized prompt leaves a node that has far more requests than the mean, and stays at its next node', () => {
  const policy = prefixAffinity();
  const some = nodes(4);
  const request = asked('x'.repeat(8 * KIB));
  const pick = () => {
    const chosen = policy.pick(some, request, () => 0.5);
    if (chosen !== undefined) policy.onRequestStart(chosen, request);
    return chosen;
  };
  const first = pick();
  expect(pick()).toBe(first);
  for (const one of some) one.inFlight = one === first ? 20 : 0;
  const second = pick();
  expect(second).not.toBe(first);
  for (const one of some) one.inFlight = 0;
  expect(pick()).toBe(second);
  // A node that left has no part in the choice.
  const left = some.filter((one) => one !== second);
  expect(left).toContain(policy.pick(left, request, () => 0.5));
});

test('a prompt to another model does not move the home of the first model', () => {
  const policy = prefixAffinity();
  const some = nodes(4);
  const prompt = 'x'.repeat(8 * KIB);
  const [one, other] = [asked(prompt), asked(prompt, 'other')];
  const home = policy.pick(some, one, () => 0.5);
  if (home === undefined) throw new Error('no node');
  policy.onRequestStart(home, one);
  // The other model does not run on that node.
  const others = some.filter((node) => node !== home);
  const second = policy.pick(others, other, () => 0.5);
  if (second === undefined) throw new Error('no node');
  policy.onRequestStart(second, other);
  expect(policy.pick(some, one, () => 0.5)).toBe(home);
});

test('a conversation that its client names is not looked up by its prompt', () => {
  const bytes = new TextEncoder().encode('x'.repeat(8 * KIB));
  const header = (name: string) => (name === 'x-otela-session' ? 'mine' : undefined);
  const request = routedRequest(
    header,
    { body: { kind: 'kept', bytes }, streaming: false, metadata: {} } as never,
    'm',
    'p',
  );
  expect([request.session === undefined, request.longerPrefixes]).toEqual([false, undefined]);
});
