import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { MeterTime } from '../../../gateway/accounts/limits/limit-meter.ts';
import {
  Limiter,
  type LimiterStore,
  type Reservation,
  type SettledUse,
} from '../../../gateway/accounts/limits/limiter.ts';
import { agrees, MemoryStore, START } from './limit-model.ts';

const at = (ms: number): MeterTime => ({ ms, month: new Date(ms).toISOString().slice(0, 7) });
const open = (ms = START, store: LimiterStore = new MemoryStore()) => new Limiter(store, at(ms));

/** The settlement of a complete response, as of `now`. */
const settled = (
  name: string,
  prompt: number,
  completion: number,
  now: MeterTime,
  more: Partial<SettledUse> = {},
): SettledUse => ({
  name,
  attempt: 1,
  prompt,
  completion,
  isComplete: true,
  keyId: 'k',
  gpuMs: 0,
  isReserved: true,
  ageMs: 0,
  month: now.month,
  ...more,
});

test('grants exactly what a list of all events grants, for any events in any order', () => {
  fc.assert(agrees(), { numRuns: 1_000 });
});

test('a count that is corrected downwards after its request has ended gives others no room in the current minute', () => {
  const limiter = open();
  const project = { tokens_per_minute: 1_000 };
  const use = (name: string, tokens: number, now: MeterTime, more: Partial<SettledUse> = {}) =>
    limiter.settle(settled(name, 0, tokens, now, more), now);
  limiter.reserve(asked('estimated', { project, maxTokens: 600 }), at(START));
  use('estimated', 600, at(START));
  limiter.release('estimated', 1, at(START));
  const later = at(START + 60_000);
  limiter.reserve(asked('running', { project, maxTokens: 900 }), later);
  use('running', 900, later);
  use('estimated', 100, later, { before: { prompt: 0, completion: 600 } });
  expect(limiter.reserve(asked('next', { project, maxTokens: 500 }), later).granted).toBe(false);
});

const asked = (name: string, more: Partial<Reservation>): Reservation => ({
  name,
  keyId: 'k',
  key: undefined,
  project: undefined,
  bodyBytes: 40,
  maxTokens: undefined,
  counts: 'answer',
  ...more,
});

test('a client that waits exactly as long as it is told passes, and not a moment sooner', () => {
  const ask = fc.record({
    afterMs: fc.nat(9_000),
    bodyBytes: fc.nat(4_000),
    maxTokens: fc.integer({ min: 1, max: 400 }),
  });
  const tpm = fc.integer({ min: 400, max: 2_000 });
  fc.assert(
    fc.property(
      fc.array(ask, { minLength: 5, maxLength: 60 }),
      tpm,
      tpm,
      fc.integer({ min: 1, max: 20 }),
      (asks, ofKey, ofProject, rpm) => {
        const key = { tokens_per_minute: ofKey, requests_per_minute: rpm };
        const project = { tokens_per_minute: ofProject };
        const run = (count: number) => {
          const limiter = open();
          let now = START;
          let last = limiter.reserve(asked('first', { key, project }), at(now));
          for (const [n, one] of asks.slice(0, count).entries()) {
            now += one.afterMs;
            last = limiter.reserve(asked(`r${n}`, { ...one, key, project }), at(now));
          }
          return { limiter, now, last };
        };
        for (let count = 1; count <= asks.length; count++) {
          const one = asks[count - 1];
          const { limiter, now, last } = run(count);
          if (last.granted || one === undefined) continue;
          const again = (ms: number) => limiter.reserve(asked('again', { ...one, key, project }), at(ms)).granted;
          expect([again(now + last.waitMs - 1), again(now + last.waitMs)]).toEqual([false, true]);
        }
      },
    ),
    { numRuns: 100 },
  );
});

test('max_tokens above the limit is refused for good; at the limit it passes once a minute', () => {
  const limiter = open();
  const key = { tokens_per_minute: 1_000 };
  for (const name of ['a', 'b', 'c']) {
    const verdict = limiter.reserve(asked(name, { key, maxTokens: 2_000 }), at(START));
    expect(verdict).toMatchObject({ granted: false, soon: false, shortage: { kind: 'answer', limit: 1_000 } });
  }
  const granted = ['d', 'e', 'f'].map(
    (name) => limiter.reserve(asked(name, { key, maxTokens: 1_000 }), at(START)).granted,
  );
  expect(granted).toEqual([true, false, false]);
});

test('a prompt that is estimated above the limit passes where nothing else is: else it never would', () => {
  const limiter = open();
  const key = { tokens_per_minute: 10 };
  expect(limiter.reserve(asked('a', { key, bodyBytes: 50_000, counts: 'prompt' }), at(START)).granted).toBe(true);
  const next = limiter.reserve(asked('b', { key, counts: 'prompt', bodyBytes: 4 }), at(START));
  expect(next).toMatchObject({ granted: false, shortage: { kind: 'tokens' } });
});

test('what running requests reserve may soon be free, what was used is not', () => {
  const limiter = open();
  const key = { tokens_per_minute: 1_000, tokens_per_month: 1_500 };
  limiter.reserve(asked('a', { key, maxTokens: 900 }), at(START));
  const refused = () => limiter.reserve(asked('b', { key, maxTokens: 200 }), at(START + 1_000));
  expect(refused()).toMatchObject({ soon: true, shortage: { kind: 'tokens' } });
  limiter.correct(settled('a', 10, 890, at(START + 1_000)), at(START + 1_000));
  expect(refused()).toMatchObject({ soon: false, shortage: { kind: 'tokens' }, waitMs: 59_000 });
  limiter.settle(settled('a', 10, 890, at(START + 1_000)), at(START + 1_000));
  limiter.settle(settled('lost', 0, 600, at(START + 1_000)), at(START + 1_000));
  const nextDay = limiter.reserve(asked('c', { key, maxTokens: 1 }), at(START + 300_000));
  expect(nextDay).toMatchObject({ soon: false, shortage: { kind: 'month', running: false, limit: 1_500 } });
  expect(limiter.reserve(asked('d', { key, maxTokens: 1 }), at(Date.parse('2026-12-01T00:00:00Z'))).granted).toBe(true);
});

test('a clock that was fast at the end of a month comes back to what was used in it', () => {
  const limiter = open();
  const key = { tokens_per_month: 100 };
  limiter.settle(settled('a', 0, 100, at(START)), at(START));
  const fast = at(Date.parse('2026-12-01T00:05:00Z'));
  expect(limiter.reserve(asked('b', { key, maxTokens: 1 }), fast).granted).toBe(true);
  const right = { ms: fast.ms + 1_000, month: '2026-11' };
  expect(limiter.reserve(asked('c', { key, maxTokens: 1 }), right)).toMatchObject({ shortage: { kind: 'month' } });
});

test('counts that were saved by a clock ten minutes fast lock no key longer than their minute', () => {
  const key = { requests_per_minute: 1 };
  const fast = open();
  fast.reserve(asked('a', { key }), at(START + 600_000));
  const saved = new Map([...fast.states(at(START + 600_000))].map(({ id, minute }) => [id, minute]));
  const store = new MemoryStore();
  store.minute = (id) => saved.get(id);
  const right = open(START, store);
  const refused = right.reserve(asked('b', { key }), at(START));
  expect(refused).toMatchObject({ granted: false, waitMs: 60_000 });
  expect(right.reserve(asked('c', { key }), at(START + 60_000)).granted).toBe(true);
});

test('an idle key is let go of, and leaves nothing that is to be saved but its estimates', () => {
  const limiter = open();
  limiter.reserve(asked('a', { key: { requests_per_minute: 5 } }), at(START));
  limiter.settle(settled('a', 5, 5, at(START)), at(START));
  expect([...limiter.states(at(START))].map(({ minute }) => minute !== undefined)).toEqual([true, true]);
  expect([...limiter.states(at(START + 60_000))].map(({ minute }) => minute !== undefined)).toEqual([false, false]);
  expect([...limiter.states(at(START + 60_000))]).toEqual([]);
});

const START_MONTH = '2026-11';

test('lines of a batch fill the month and no minute', () => {
  const limiter = open();
  const project = { tokens_per_minute: 1_000, tokens_per_month: 100_000 };
  for (let line = 0; line < 10; line++)
    limiter.settle(settled(`batch/${line}`, 2_500, 2_500, at(START), { isReserved: false }), at(START));
  expect(limiter.reserve(asked('chat', { project, maxTokens: 100 }), at(START)).granted).toBe(true);
  const { project: uses } = limiter.uses({ keyId: 'k', key: undefined, project }, at(START));
  expect(uses).toContainEqual({ limit: 'tokens_per_month', allowed: 100_000, used: 50_110 });
});

test('what was used an hour ago, and is told now, fills no minute', () => {
  const limiter = open();
  const key = { tokens_per_minute: 1_000 };
  limiter.settle(settled('old', 0, 5_000, at(START), { ageMs: 3_600_000 }), at(START));
  expect(limiter.reserve(asked('a', { key, maxTokens: 100 }), at(START)).granted).toBe(true);
  limiter.settle(settled('new', 0, 5_000, at(START), { ageMs: 1_000 }), at(START));
  expect(limiter.reserve(asked('b', { key, maxTokens: 100 }), at(START))).toMatchObject({ granted: false });
});

test('tokens are of the month in which they were used, though they are told in the next', () => {
  const limiter = open();
  const key = { tokens_per_month: 1_000 };
  const next = at(Date.parse('2026-12-01T00:05:00Z'));
  limiter.settle(settled('late', 0, 450, next, { month: START_MONTH, ageMs: 900_000 }), next);
  const used = (now: MeterTime) => limiter.uses({ keyId: 'k', key, project: undefined }, now).key[0]?.used;
  expect([used(next), used(at(START))]).toEqual([0, 450]);
});

test('a failed attempt frees neither the place nor the tokens of a request that is tried elsewhere', () => {
  const limiter = open();
  const key = { concurrent_requests: 1, tokens_per_month: 1_000 };
  limiter.reserve(asked('a', { key, maxTokens: 900 }), at(START));
  limiter.settle(settled('a', 0, 0, at(START), { isComplete: false }), at(START));
  const refused = limiter.reserve(asked('b', { key, maxTokens: 900 }), at(START));
  expect(refused).toMatchObject({ granted: false, shortage: { kind: 'concurrent' } });
  limiter.settle(settled('a', 10, 200, at(START), { attempt: 2 }), at(START));
  // Its client is still reading what the engine has finished.
  expect(limiter.reserve(asked('c', { key, maxTokens: 90 }), at(START))).toMatchObject({ granted: false });
  limiter.release('a', 2, at(START));
  expect(limiter.reserve(asked('d', { key, maxTokens: 90 }), at(START)).granted).toBe(true);
});

test('a request that reached no engine leaves nothing, and one whose report never comes is forgotten after minutes', () => {
  const limiter = open();
  const key = { tokens_per_month: 1_000 };
  const ask = (name: string, ms: number) => limiter.reserve(asked(name, { key, maxTokens: 990 }), at(ms));
  expect(ask('a', START).granted).toBe(true);
  expect(ask('b', START)).toMatchObject({ granted: false, shortage: { kind: 'month', running: true } });
  limiter.release('a', 0, at(START));
  expect(ask('c', START).granted).toBe(true);
  limiter.release('c', 1, at(START));
  expect(ask('d', START + 4 * 60_000).granted).toBe(false);
  expect(ask('e', START + 6 * 60_000).granted).toBe(true);
});

test('an exact count books what the estimate before it lacked', () => {
  const limiter = open();
  const key = { tokens_per_month: 200_000 };
  limiter.reserve(asked('a', { key }), at(START));
  limiter.settle(settled('a', 0, 50, at(START), { isComplete: false }), at(START));
  const exact = { before: { prompt: 0, completion: 50 } };
  limiter.settle(settled('a', 100_000, 60, at(START), exact), at(START));
  const { key: uses } = limiter.uses({ keyId: 'k', key, project: undefined }, at(START));
  expect(uses).toEqual([{ limit: 'tokens_per_month', allowed: 200_000, used: 100_060 }]);
});

test('a running request keeps its place when its object is evicted, and loses it when its process is gone', () => {
  const key = { concurrent_requests: 1 };
  const store = new MemoryStore();
  const first = open(START, store);
  first.reserve(asked('a', { key }), at(START));
  store.save(first, at(START));
  const evicted = open(START + 600_000, store);
  expect(evicted.reserve(asked('b', { key }), at(START + 600_000)).granted).toBe(false);
  const restarted = open(START + 600_000, store);
  restarted.interrupt(at(START + 600_000));
  expect(restarted.reserve(asked('c', { key }), at(START + 600_000)).granted).toBe(true);
});

test('a request of one process that has ended loses its place, also after an eviction; one of another process does not', () => {
  const key = { concurrent_requests: 2 };
  const store = new MemoryStore();
  const first = open(START, store);
  first.reserve({ ...asked('a', { key }), process: 'ended' }, at(START));
  first.reserve({ ...asked('b', { key }), process: 'running' }, at(START));
  store.save(first, at(START));
  const limiter = open(START + 1_000, store);
  const grants = (name: string) => limiter.reserve(asked(name, { key }), at(START + 1_000)).granted;
  expect(grants('c')).toBe(false);
  limiter.interrupt(at(START + 1_000), ({ process }) => process === 'ended');
  expect([grants('c'), grants('d')]).toEqual([true, false]);
});

test('a request that counts no tokens passes while the minute has none left', () => {
  const limiter = open();
  const key = { tokens_per_minute: 1_000 };
  limiter.settle(settled('over', 0, 1_500, at(START)), at(START));
  expect(limiter.reserve(asked('a', { key, counts: 'nothing' }), at(START)).granted).toBe(true);
  expect(limiter.reserve(asked('b', { key }), at(START)).granted).toBe(false);
});

test('a request that asks again, because the call broke, is counted once', () => {
  const limiter = open();
  const key = { concurrent_requests: 1, requests_per_minute: 2 };
  for (let n = 0; n < 3; n++) expect(limiter.reserve(asked('one', { key }), at(START)).granted).toBe(true);
  limiter.release('one', 1, at(START));
  expect(limiter.reserve(asked('two', { key }), at(START)).granted).toBe(true);
});
