import { env } from 'cloudflare:workers';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { tokensAhead } from '../../../gateway/accounts/hold.ts';
import type { Limits } from '../../../gateway/accounts/limits.ts';
import type { LimitsObject, Verdict } from '../../../gateway/accounts/limits-object.ts';
import { Meter } from '../../../gateway/accounts/meter.ts';
import { MinuteWindow } from '../../../gateway/accounts/minute-window.ts';

const SECOND = 1_000;
/** A Friday, well inside a month. */
const START = Date.parse('2026-11-20T10:00:00Z');

test('whatever comes when, no sixty seconds hold more than the limit', () => {
  const step = fc.record({ afterMs: fc.nat(20_000), count: fc.integer({ min: 1, max: 4 }) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), fc.integer({ min: 4, max: 12 }), (steps, limit) => {
      const window = new MinuteWindow();
      const let_in: { at: number; count: number }[] = [];
      let now = START;
      for (const { afterMs, count } of steps) {
        now += afterMs;
        const second = Math.floor(now / SECOND);
        const wait = window.waitFor(count, limit, second);
        // A wait is told exactly: it fits then, and not a second before.
        const later = (s: number) => new MinuteWindow(window.state()).waitFor(count, limit, second + s);
        if (wait > 0) expect([later(wait), later(wait - 1) > 0]).toEqual([0, true]);
        else {
          window.add(count, second);
          let_in.push({ at: now, count });
        }
      }
      for (const { at } of let_in) {
        const inside = let_in.filter((one) => one.at >= at && one.at < at + 60_000);
        expect(inside.reduce((sum, { count }) => sum + count, 0)).toBeLessThanOrEqual(limit);
      }
    }),
    { numRuns: 500 },
  );
});

test('a window that went through a restart says what it said before', () => {
  const window = new MinuteWindow();
  window.add(3, 100);
  window.add(2, 130);
  const again = new MinuteWindow(JSON.parse(JSON.stringify(window.state())));
  for (const second of [130, 150, 160, 161, 190, 191, 400]) expect(again.sum(second)).toBe(window.sum(second));
  expect(window.sum(400)).toBe(0);
});

test('tokens that were reserved give way to those that were used, in the minute and in the month', () => {
  const limits: Limits = { tokens_per_minute: 1_000, tokens_per_month: 1_500 };
  const meter = new Meter();
  meter.take({ tokens: 900 }, START);
  expect(meter.shortage(limits, { tokens: 200 }, START)).toMatchObject({ kind: 'tokens' });
  meter.settle(900, 100, START, START + SECOND);
  expect(meter.shortage(limits, { tokens: 200 }, START + SECOND)).toBeUndefined();
  meter.take({ tokens: 10 }, START + SECOND);
  meter.settle(10, 1_400, START + SECOND, START + 2 * SECOND);
  expect(meter.used).toBe(1_500);
  expect(meter.shortage(limits, { tokens: 1 }, START + 90 * SECOND)).toEqual({ kind: 'month', limit: 1_500 });
  expect(meter.shortage(limits, { tokens: 1 }, Date.parse('2026-12-01T00:00:00Z'))).toBeUndefined();
});

test('a request above the limit of a minute gets through where it is alone', () => {
  const meter = new Meter();
  expect(meter.shortage({ tokens_per_minute: 10 }, { tokens: 5_000 }, START)).toBeUndefined();
  meter.take({ tokens: 5_000 }, START);
  expect(meter.shortage({ tokens_per_minute: 10 }, { tokens: 1 }, START)).toMatchObject({ kind: 'tokens' });
});

let subjects = 0;
function object(): DurableObjectStub<LimitsObject> {
  return env.LIMITS.getByName(`key:test-${++subjects}`);
}

const ask = (name: string, key: Limits, project?: Limits, tokens = 10, keyId = 'k') => ({
  name,
  keyId,
  key,
  project,
  tokens,
});

async function many(count: number, reserve: (n: number) => Promise<Verdict>): Promise<number> {
  const verdicts = await Promise.all(Array.from({ length: count }, (_, n) => reserve(n)));
  return verdicts.filter(({ granted }) => granted).length;
}

test.each([
  ['requests a minute', { requests_per_minute: 10 }],
  ['tokens a minute', { tokens_per_minute: 100 }],
  ['requests at once', { concurrent_requests: 10 }],
])('of a hundred at once on a limit of ten %s, ten get through, for a key and for a project', async (_, limits) => {
  const key = object();
  expect(await many(100, (n) => key.reserve(ask(`r${n}`, limits)))).toBe(10);
  const project = object();
  const byMany = await many(100, (n) => project.reserve(ask(`r${n}`, {}, limits, 10, `key${n % 7}`)));
  expect(byMany).toBe(10);
});

test('a place that is given back is taken by who waits for it', async () => {
  const limits = { concurrent_requests: 1 };
  const counter = object();
  expect((await counter.reserve(ask('a', limits))).granted).toBe(true);
  const next = counter.reserve(ask('b', limits));
  await counter.release('a', true);
  expect((await next).granted).toBe(true);
  // Settled without ever being released: its isolate is gone.
  const third = counter.reserve(ask('c', limits));
  const settlement = { name: 'b', keyId: 'k', tokens: 5, repeated: false };
  await counter.settle('node', [{ position: 1, settlement }]);
  expect((await third).granted).toBe(true);
});

test('a settlement that is said again counts once, and one that corrects another counts for nothing', async () => {
  const counter = object();
  await counter.reserve(ask('a', { tokens_per_month: 1_000 }));
  const settle = (position: number, repeated = false) => ({
    position,
    settlement: { name: `a${position}`, keyId: 'k', tokens: 100, repeated },
  });
  await counter.settle('node', [settle(1), settle(2)]);
  await counter.settle('node', [settle(1), settle(2), settle(3)]);
  await counter.settle('node', [settle(4, true)]);
  await counter.settle('other', [settle(1)]);
  const month = new Date().toISOString().slice(0, 7);
  expect(await counter.used(month)).toEqual(
    expect.arrayContaining([
      { id: '', used: 400 },
      { id: 'k', used: 400 },
    ]),
  );
});

test('a request that never began gives its tokens back', async () => {
  const limits = { tokens_per_minute: 100 };
  const counter = object();
  expect((await counter.reserve(ask('a', limits, undefined, 100))).granted).toBe(true);
  expect((await counter.reserve(ask('b', limits, undefined, 50))).granted).toBe(false);
  await counter.release('a', false);
  expect((await counter.reserve(ask('c', limits, undefined, 100))).granted).toBe(true);
});

test('a request is expected to use what its length says, within reason, and nothing where nothing is generated', () => {
  const chat = { usage: 'openai' } as const;
  expect(tokensAhead(chat, '400')).toBe(356);
  expect(tokensAhead(chat, null)).toBe(1_024);
  expect(tokensAhead(chat, 'x')).toBe(1_024);
  expect(tokensAhead(chat, String(32 * 1024 * 1024))).toBe(131_072);
  expect(tokensAhead({ usage: 'none' }, '5000000')).toBe(0);
});

test('the headers tell what is left of the tighter of two limits', async () => {
  const counter = object();
  const verdict = await counter.reserve(ask('a', { requests_per_minute: 100 }, { requests_per_minute: 3 }));
  expect(verdict.headers).toEqual({
    'x-ratelimit-limit-requests': '3',
    'x-ratelimit-remaining-requests': '2',
    'x-ratelimit-reset-requests': '1m1s',
  });
});
