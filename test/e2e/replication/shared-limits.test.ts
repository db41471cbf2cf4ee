/**
 * A follower asks a primary that is slow or does not answer: nothing is counted twice, and the limit is not exceeded.
 */
import { expect, test, vi } from 'vitest';
import type { Reservation } from '../../../gateway/accounts/limits/limiter.ts';
import { LimitsObject } from '../../../gateway/accounts/limits/limits-object.ts';
import type { Env } from '../../../gateway/env.ts';
import { ReadSql } from '../../../gateway/hosts/node/object-storage.ts';
import { IdempotentCalls } from '../../../gateway/hosts/node/replication/idempotent-calls.ts';
import { followerLimits, primaryLimits } from '../../../gateway/hosts/node/replication/shared-limits.ts';
import { Database } from '../../../gateway/hosts/node/sqlite.ts';
import type { ObjectContext, ObjectNamespace } from '../../../gateway/platform/object-context.ts';

const ASKED: Reservation = {
  name: 'req-1',
  keyId: 'key_1',
  key: { requests_per_minute: 10 },
  project: undefined,
  counts: 'nothing',
  bodyBytes: 0,
  maxTokens: undefined,
} as unknown as Reservation;
const GRANTED = { granted: true, headers: {} };

/** A follower with limits that record their calls, and a primary that answers with `answer`. */
function follower(answer: (n: number) => unknown, alone: () => boolean = () => false) {
  const own = { reserve: vi.fn(async (_asked: Reservation) => GRANTED) };
  const first = { reserve: vi.fn(async () => GRANTED) };
  const primary = new IdempotentCalls(() => performance.now());
  const released: unknown[] = [];
  let [asked, now] = [0, 0];
  const limits = followerLimits({ getByName: () => own } as unknown as ObjectNamespace<LimitsObject>, {
    ask: async (_subject, method, args, once) => {
      if (method === 'release') return released.push(args);
      const counted = await primary.do(String(once), () => first.reserve());
      answer(asked++);
      return counted;
    },
    alone: async () => alone(),
    part: () => ({ of: 'follower', followers: 1 }),
    nonce: () => String(Math.random()),
    pause: async (ms) => {
      now += ms;
    },
    now: () => now,
    settled: async () => {},
    note: () => {},
    handOver: () => {},
  });
  return { own, first, released, asked: () => asked, reserve: () => limits.getByName('key_1').reserve(ASKED) };
}

const lost = () => {
  throw new Error('the answer did not come in time');
};

test('requests of one subject share one stub, so that its calls can be optimized', () => {
  const getByName = vi.fn((_subject: string) => ({}));
  const limits = primaryLimits(
    { getByName } as unknown as ObjectNamespace<LimitsObject>,
    () => undefined,
    () => {},
  );
  expect(limits.getByName('key_1')).toBe(limits.getByName('key_1'));
  expect(limits.getByName('key_2')).not.toBe(limits.getByName('key_1'));
  expect(getByName).toHaveBeenCalledTimes(2);
});

test('a question whose answer was lost counts once', async () => {
  const { reserve, own, first, asked } = follower((n) => n < 2 && lost());
  expect(await reserve()).toEqual(GRANTED);
  expect(await reserve()).toEqual(GRANTED);
  expect(asked()).toBe(4);
  expect(first.reserve).toHaveBeenCalledTimes(2);
  expect(own.reserve).not.toHaveBeenCalled();
});

test('a first that is heard and does not count in time is no reason to allow a part beside it', async () => {
  const { reserve, own, released } = follower(lost);
  await expect(reserve()).rejects.toThrow('did not come in time');
  expect(own.reserve).not.toHaveBeenCalled();
  // The primary may have made the reservation nevertheless, so the follower releases it: otherwise it would be held for
  // an hour.
  expect(released).toEqual([[ASKED.name, 0]]);
});

test('a follower that is alone allows its part', async () => {
  const { reserve, own } = follower(lost, () => true);
  expect(await reserve()).toEqual(GRANTED);
  expect(own.reserve.mock.calls[0]?.[0].key).toEqual({ requests_per_minute: 5 });
});

test('answers are remembered for a minute, ten thousand at most; what failed is done again', async () => {
  let now = 0;
  const once = new IdempotentCalls(() => now);
  const work = vi.fn(async () => work.mock.calls.length);
  expect([await once.do('a', work), await once.do('a', work)]).toEqual([1, 1]);
  now = 60_001;
  expect(await once.do('a', work)).toBe(2);
  for (let n = 0; n < 10_000; n++) await once.do(`b${n}`, async () => n);
  expect(await once.do('a', work)).toBe(3);
  await expect(once.do('c', () => Promise.reject(new Error('full')))).rejects.toThrow('full');
  expect(await once.do('c', work)).toBe(4);
});

/** The limits of one subject, over a database of this test. */
function limitsObject(): LimitsObject {
  const database = new Database(':memory:');
  const reads = new ReadSql(database);
  const exec = (query: string, ...bindings: unknown[]) => {
    if (query.startsWith('SELECT')) return reads.exec(query, ...bindings);
    // The statement runs only when its cursor is read.
    if (bindings.length === 0) database.script(query);
    else database.rows(query, bindings);
    return reads.exec('SELECT 1');
  };
  const clock = { after: () => () => {} };
  return new LimitsObject({ clock, storage: { sql: { exec } } } as unknown as ObjectContext, {} as Env);
}

test('counts that are said again, in any order, count once', () => {
  const month = new Date().toISOString().slice(0, 7);
  const object = limitsObject();
  const hear = (tokens: number) => object.hearCounts(month, [{ origin: 'other', id: 'key_1', tokens }]);
  for (const tokens of [10, 15, 15, 4]) hear(tokens);
  expect(object.used(month)).toEqual([{ id: 'key_1', used: 15 }]);
  expect(object.counts(month)).toContainEqual({ origin: 'other', id: 'key_1', tokens: 15 });
});

test('counts of many keys are heard and told in time that grows as they do', () => {
  const month = new Date().toISOString().slice(0, 7);
  const spent = (keys: number) => {
    const object = limitsObject();
    const told = Array.from({ length: keys }, (_, n) => ({ origin: 'other', id: `key_${n}`, tokens: n + 1 }));
    const from = process.cpuUsage().user;
    object.hearCounts(month, told);
    const counts = object.counts(month);
    expect(counts).toHaveLength(2 * keys);
    expect(counts.filter(({ origin, tokens }) => origin === '' && tokens !== 0)).toEqual([]);
    expect(object.counts(month, ['key_1', 'key_x'])).toEqual([
      { origin: 'other', id: 'key_1', tokens: 2 },
      { origin: '', id: 'key_1', tokens: 0 },
    ]);
    return process.cpuUsage().user - from;
  };
  spent(500); // warm-up: compiles
  const [few, many] = [spent(1_000), spent(8_000)];
  // Eight times as many items: the ratio is 8 if linear, 64 if quadratic.
  expect(many / few).toBeLessThan(24);
});
