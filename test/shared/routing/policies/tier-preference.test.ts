import { describe, expect, it } from 'vitest';
import type { Candidate } from '../../../../shared/routing/candidates.ts';
import { preferredTier } from '../../../../shared/routing/policies/tier-preference.ts';

const NOW = 1_000_000;
const HOUR_MS = 3_600_000;

const node = (session: string, more: Partial<Candidate> = {}): Candidate => ({
  ...{ session, provider: 'lab', cluster: 'alps', tier: 'volatile', inFlight: 0 },
  ...more,
});
const stable = (session: string, more: Partial<Candidate> = {}) => node(session, { tier: 'stable', ...more });
const busy = (running: number, waiting = 0) => ({ load: { running, waiting, at: NOW } });

const chosen = (nodes: readonly Candidate[], request: Partial<Parameters<typeof preferredTier>[1]> = {}) =>
  preferredTier(nodes, { priority: 'interactive', ...request }, NOW)
    .map(({ session }) => session)
    .join('');

describe('nodes of two tiers', () => {
  const both = [stable('a'), node('b'), stable('c')];

  it('interactive requests prefer the stable ones, batches the volatile ones', () => {
    expect(chosen(both)).toBe('ac');
    expect(chosen(both, { priority: 'batch' })).toBe('b');
  });

  it('the same list gives the same array, so that policies can remember results by list', () => {
    const ask = () => preferredTier(both, { priority: 'interactive' }, NOW);
    expect(ask()).toBe(ask());
  });

  it.each([
    ['have a queue', busy(4, 1), 'ab'],
    ['have more than twice the requests of the others and eight', busy(9), 'ab'],
    ['have a few requests', busy(8), 'a'],
  ])('the others help when the preferred ones %s', (_what, load, wanted) => {
    expect(chosen([stable('a', load), node('b')])).toBe(wanted);
  });

  it('one preferred node without work is enough', () => {
    expect(chosen([stable('a', busy(50, 5)), stable('b'), node('c')])).toBe('ab');
  });
});

describe('a node whose job ends before the response', () => {
  const ending = (ms: number) => ({ jobEndsAt: NOW + ms });

  it.each([
    ['a response of a usual length', {}, 59_000, 'b'],
    ['a response of a usual length that ends before', {}, 61_000, 'ab'],
    ['a long response', { maxTokens: 8_000 }, 399_000, 'b'],
    ['a short one', { maxTokens: 100 }, 6_000, 'ab'],
  ])('is avoided for %s', (_what, request, leftMs, wanted) => {
    expect(chosen([node('a', ending(leftMs)), node('b', ending(HOUR_MS))], request)).toBe(wanted);
  });

  it('is avoided before tiers count', () => {
    expect(chosen([stable('a', ending(1_000)), node('b')])).toBe('b');
  });

  it('gets requests when it is the only one, or the others are busy', () => {
    expect(chosen([node('a', ending(0)), node('b', ending(0))])).toBe('ab');
    expect(chosen([node('a', ending(0)), node('b', busy(20))])).toBe('ab');
  });
});

it.each([[[]], [[node('a')]], [[stable('a'), stable('b')]], [[node('a'), node('b')]]])(
  'a list without a choice stays the same array',
  (nodes) => expect(preferredTier(nodes, { priority: 'interactive' }, NOW)).toBe(nodes),
);

it('of 10,000 nodes in two tiers, most of whose jobs end, a request looks at a few, and gets the same array', () => {
  let looks = 0;
  const many = Array.from({ length: 10_000 }, (_, n) => {
    const one = n % 2 === 0 ? stable(`n${n}`) : node(`n${n}`);
    const jobEndsAt = n % 5 === 0 ? NOW + HOUR_MS : NOW + 30_000;
    const load = { running: 1, waiting: 0, at: NOW };
    const get = () => {
      looks++;
      return load;
    };
    return Object.defineProperty({ ...one, jobEndsAt }, 'load', { get });
  });
  const ask = () => preferredTier(many, { priority: 'interactive' }, NOW);
  const first = ask();
  expect(first.length).toBe(1_000);
  looks = 0;
  expect(ask()).toBe(first);
  expect(looks).toBeLessThan(1_000);
});
