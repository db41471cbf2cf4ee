/** The limiter against a reference that keeps every request in a list and counts anew each time. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Limiter, type LimiterStore, type Reservation } from '../../../gateway/accounts/limits/limiter.ts';
import type { Limits } from '../../../gateway/accounts/limits/limits.ts';
import type { Moment } from '../../../gateway/accounts/limits/meter.ts';
import { TokenEstimator } from '../../../gateway/accounts/limits/token-estimator.ts';

/** One slot of the windows: at its multiples they are exact. */
const TICK_MS = 250;
const START = Date.parse('2026-11-20T10:00:00Z');
const at = (ms: number): Moment => ({ ms, month: new Date(ms).toISOString().slice(0, 7) });

function memoryStore(): LimiterStore {
  const months = new Map<string, number>();
  return {
    minute: () => undefined,
    estimator: () => undefined,
    ledger: (id) => ({
      used: (month) => months.get(`${id} ${month}`) ?? 0,
      write: (month, used) => void months.set(`${id} ${month}`, used),
    }),
  };
}

interface Entry {
  name: string;
  keyId: string;
  at: number;
  tokens: number;
  running: boolean;
}

class Reference {
  readonly entries: Entry[] = [];
  readonly #estimators = new Map<string, TokenEstimator>();

  estimator(id: string): TokenEstimator {
    const estimator = this.#estimators.get(id) ?? new TokenEstimator();
    this.#estimators.set(id, estimator);
    return estimator;
  }

  estimate(asked: Reservation): number {
    const own = this.estimator(asked.keyId);
    const project = this.estimator('');
    const limit = Math.min(
      asked.key?.tokens_per_minute ?? Number.MAX_VALUE,
      asked.project?.tokens_per_minute ?? Number.MAX_VALUE,
    );
    return (!own.believed && project.believed ? project : own).estimate(asked, limit === Number.MAX_VALUE ? 0 : limit);
  }

  fits(asked: Reservation, now: number): boolean {
    const tokens = this.estimate(asked);
    const scopes: [Limits | undefined, Entry[]][] = [
      [asked.project, this.entries],
      [asked.key, this.entries.filter(({ keyId }) => keyId === asked.keyId)],
    ];
    return scopes.every(([limits, entries]) => {
      const recent = entries.filter((one) => one.at + 60_000 > now);
      const sum = recent.reduce((all, one) => all + one.tokens, 0);
      const month = entries.reduce((all, one) => all + one.tokens, 0);
      const tpm = limits?.tokens_per_minute ?? Number.MAX_VALUE;
      return (
        recent.length + 1 <= (limits?.requests_per_minute ?? Number.MAX_VALUE) &&
        sum + Math.min(tokens, tpm) <= tpm &&
        (asked.maxTokens ?? 0) <= tpm &&
        month < (limits?.tokens_per_month ?? Number.MAX_VALUE) &&
        entries.filter(({ running }) => running).length < (limits?.concurrent_requests ?? Number.MAX_VALUE)
      );
    });
  }
}

const limit = (max: number) => fc.option(fc.integer({ min: 1, max }), { nil: undefined });
const limits: fc.Arbitrary<Limits> = fc.record({
  requests_per_minute: limit(10),
  tokens_per_minute: limit(3_000),
  concurrent_requests: limit(6),
  tokens_per_month: limit(10_000),
});
const step = fc.oneof(
  fc.record({
    kind: fc.constant('ask' as const),
    key: fc.constantFrom('a', 'b'),
    bodyBytes: fc.nat(2_000),
    maxTokens: fc.option(fc.integer({ min: 1, max: 1_000 }), { nil: undefined }),
  }),
  fc.record({
    kind: fc.constantFrom('correct', 'settle'),
    which: fc.nat(),
    prompt: fc.nat(500),
    completion: fc.nat(900),
  }),
  fc.record({ kind: fc.constantFrom('release', 'forget'), which: fc.nat() }),
  fc.record({ kind: fc.constant('pass' as const), ticks: fc.nat(80) }),
);

test('grants exactly what the reference grants, whatever comes in whatever order', () => {
  fc.assert(
    fc.property(limits, limits, fc.array(step, { maxLength: 120 }), (key, project, steps) => {
      const limiter = new Limiter(memoryStore());
      const reference = new Reference();
      const open: (Reservation & { entry: Entry; estimated: boolean })[] = [];
      let now = START;
      let names = 0;
      for (const one of steps) {
        if (one.kind === 'pass') {
          now += one.ticks * TICK_MS;
          continue;
        }
        if (one.kind === 'ask') {
          const { bodyBytes, maxTokens } = one;
          const asked = {
            name: `r${names++}`,
            keyId: one.key,
            key,
            project,
            bodyBytes,
            maxTokens,
            counts: 'answer' as const,
          };
          const expected = reference.fits(asked, now);
          const tokens = reference.estimate(asked);
          expect(limiter.reserve(asked, at(now)).granted).toBe(expected);
          if (!expected) continue;
          const entry = { name: asked.name, keyId: one.key, at: now, tokens, running: true };
          reference.entries.push(entry);
          open.push({ ...asked, entry, estimated: true });
          continue;
        }
        const chosen = open[one.which % Math.max(1, open.length)];
        if (chosen === undefined) continue;
        const { entry } = chosen;
        if (one.kind === 'correct' || one.kind === 'settle') {
          const used = { prompt: one.prompt, completion: one.completion };
          // More than was reserved of a request that has left the window counts from now on.
          if (entry.at + 60_000 <= now && one.prompt + one.completion > entry.tokens) continue;
          if (chosen.estimated) for (const id of ['', entry.keyId]) reference.estimator(id).learn(chosen, used);
          chosen.estimated = false;
          entry.tokens = one.prompt + one.completion;
          if (one.kind === 'correct') limiter.correct(entry.name, used, at(now));
          else limiter.settle(entry.name, { keyId: entry.keyId }, used, 0, at(now));
        }
        if (one.kind === 'release') limiter.release(entry.name, true, at(now));
        if (one.kind === 'forget') {
          limiter.release(entry.name, false, at(now));
          entry.tokens = 0;
        }
        if (one.kind !== 'correct') entry.running = false;
        if (one.kind === 'settle' || one.kind === 'forget') open.splice(open.indexOf(chosen), 1);
      }
    }),
    { numRuns: 1_000 },
  );
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
          const limiter = new Limiter(memoryStore());
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
  const limiter = new Limiter(memoryStore());
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
  const limiter = new Limiter(memoryStore());
  const key = { tokens_per_minute: 10 };
  expect(limiter.reserve(asked('a', { key, bodyBytes: 50_000, counts: 'prompt' }), at(START)).granted).toBe(true);
  const next = limiter.reserve(asked('b', { key, counts: 'prompt', bodyBytes: 4 }), at(START));
  expect(next).toMatchObject({ granted: false, shortage: { kind: 'tokens' } });
});

test('what running requests reserve may soon be free, what was used is not', () => {
  const limiter = new Limiter(memoryStore());
  const key = { tokens_per_minute: 1_000, tokens_per_month: 1_500 };
  limiter.reserve(asked('a', { key, maxTokens: 900 }), at(START));
  const refused = () => limiter.reserve(asked('b', { key, maxTokens: 200 }), at(START + 1_000));
  expect(refused()).toMatchObject({ soon: true, shortage: { kind: 'tokens' } });
  limiter.correct('a', { prompt: 10, completion: 890 }, at(START + 1_000));
  expect(refused()).toMatchObject({ soon: false, shortage: { kind: 'tokens' }, waitMs: 59_000 });
  limiter.settle('a', { keyId: 'k' }, { prompt: 10, completion: 890 }, 0, at(START + 1_000));
  limiter.settle('lost', { keyId: 'k' }, { prompt: 0, completion: 600 }, 0, at(START + 1_000));
  const nextDay = limiter.reserve(asked('c', { key, maxTokens: 1 }), at(START + 86_400_000));
  expect(nextDay).toMatchObject({ soon: false, shortage: { kind: 'month', running: false, limit: 1_500 } });
  expect(limiter.reserve(asked('d', { key, maxTokens: 1 }), at(Date.parse('2026-12-01T00:00:00Z'))).granted).toBe(true);
});

test('a clock that was fast at the end of a month comes back to what was used in it', () => {
  const limiter = new Limiter(memoryStore());
  const key = { tokens_per_month: 100 };
  limiter.settle('a', { keyId: 'k' }, { prompt: 0, completion: 100 }, 0, at(START));
  const fast = at(Date.parse('2026-12-01T00:05:00Z'));
  expect(limiter.reserve(asked('b', { key, maxTokens: 1 }), fast).granted).toBe(true);
  const right = { ms: fast.ms + 1_000, month: '2026-11' };
  expect(limiter.reserve(asked('c', { key, maxTokens: 1 }), right)).toMatchObject({ shortage: { kind: 'month' } });
});

test('counts that were saved by a clock ten minutes fast lock nobody longer than their minute', () => {
  const key = { requests_per_minute: 1 };
  const fast = new Limiter(memoryStore());
  fast.reserve(asked('a', { key }), at(START + 600_000));
  const saved = new Map([...fast.states(at(START + 600_000))].map(({ id, minute }) => [id, minute]));
  const right = new Limiter({ ...memoryStore(), minute: (id) => saved.get(id) });
  const refused = right.reserve(asked('b', { key }), at(START));
  expect(refused).toMatchObject({ granted: false, waitMs: 60_000 });
  expect(right.reserve(asked('c', { key }), at(START + 60_000)).granted).toBe(true);
});

test('an idle key is let go of, and leaves nothing that is to be saved but its estimates', () => {
  const limiter = new Limiter(memoryStore());
  limiter.reserve(asked('a', { key: { requests_per_minute: 5 } }), at(START));
  limiter.settle('a', { keyId: 'k' }, { prompt: 5, completion: 5 }, 0, at(START));
  expect([...limiter.states(at(START))].map(({ minute }) => minute !== undefined)).toEqual([true, true]);
  expect([...limiter.states(at(START + 60_000))].map(({ minute }) => minute !== undefined)).toEqual([false, false]);
  expect([...limiter.states(at(START + 60_000))]).toEqual([]);
});
