/** The replicas that a kind is sent to while there is capacity, while there is none, and while replicas change. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { PublishedShares } from '../../../scheduler/follow/kind-shares.ts';
import { kindShares } from '../../../scheduler/follow/kind-shares.ts';
import { demand, KINDS, problem } from './support.ts';

const PUBLISHED = KINDS.map((name) => ({ name, input: 100, output: 100, share: 0.5 }));
const SERVING = (prompts: number, answers: number) =>
  new Map([
    [0, Array.from({ length: prompts }, (_, n) => `p${n}`)],
    [1, Array.from({ length: answers }, (_, n) => `a${n}`)],
  ]);

/** Share of a kind that is sent to replicas of the shape that suits answers (`a…`) or prompts (`p…`). */
const part = (shares: PublishedShares | undefined, kind: string, shape: string) =>
  (shares?.weights ?? [])
    .filter((rule) => rule.kind === kind && rule.session?.startsWith(shape))
    .reduce((sum, { weight }) => sum + weight, 0);
const shared = (steps: number[][], serving: Map<number, string[]>, slotS = 60) =>
  kindShares(problem(steps, { slotS }), demand(steps), PUBLISHED, serving, 0);

test('what its replicas cannot do for a moment waits for them: others would answer it later still', () => {
  // The first of two waves: two slots of a second with more answers than their one replica can serve, then fewer.
  const steps = [
    [2, 13],
    [2, 5],
  ];
  const shares = shared(steps, SERVING(2, 1), 1);
  expect(part(shares, 'answers', 'p')).toBe(0);
  expect(part(shares, 'answers', 'a')).toBeCloseTo(1, 3);
  expect(part(shares, 'prompts', 'p')).toBeCloseTo(1, 3);
});

test('what they cannot do for long goes to others, as far as these have room and not further', () => {
  const shares = shared([[2, 20]], SERVING(2, 1));
  const away = 20 * part(shares, 'answers', 'p');
  expect(away).toBeGreaterThan(0);
  // Prompts take 0.2 of two replicas; an answer takes a second there.
  expect(2 / 10 + away).toBeLessThanOrEqual(2 * 0.92 + 0.01);
});

test('while replicas change an excess lasts no longer than the change, and waits', () => {
  const steps = Array.from({ length: 5 }, () => [2, 13]);
  const given = [problem(steps, { slotS: 1 }), demand(steps), PUBLISHED, SERVING(2, 1), 0] as const;
  expect(part(kindShares(...given), 'answers', 'p')).toBeGreaterThan(0);
  expect(part(kindShares(...given, 1.5), 'answers', 'p')).toBe(0);
});

test('a node that has just come is left alone until its shape is known', () => {
  const shares = shared([[10, 10]], SERVING(2, 2));
  const [rest] = (shares?.weights ?? []).filter(({ session }) => session === undefined);
  expect(rest?.weight).toBeGreaterThan(0);
  expect(rest?.weight).toBeLessThan(0.01);
});

const rate = fc.double({ min: 0, max: 200, noNaN: true });

test('whatever is expected, each kind has all of its shares, and no replica is overfilled with what does not suit it', () => {
  fc.assert(
    fc.property(rate, rate, fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 4 }), (p, a, fast, slow) => {
      const shares = shared([[p, a]], SERVING(fast, slow));
      for (const kind of KINDS) expect(part(shares, kind, 'p') + part(shares, kind, 'a')).toBeCloseTo(1, 2);
      const away = a * part(shares, 'answers', 'p');
      if (away > 0.05 * Math.max(1, a)) expect(away).toBeLessThanOrEqual(0.92 * fast + 0.01 * a);
    }),
    { numRuns: 200 },
  );
});

test('nodes beyond what a gateway takes rules for get as much as others on average', () => {
  const steps = [[100, 100]];
  const { weights } = shared(steps, SERVING(300, 300)) ?? { weights: [] };
  expect(weights).toHaveLength(500);
  const rest = weights.at(-1);
  expect(rest).toEqual({ weight: 0.0017 });
});
