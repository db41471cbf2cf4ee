import { env } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import { database } from '../../../gateway/accounts/database.ts';
import { encryptText as sealText } from '../../../gateway/accounts/encrypt-text.ts';
import {
  openIdentity,
  type ReceiptIdentity,
  readReceipt,
  receiptOf,
  receiptSealOf,
  sealIdentity,
} from '../../../gateway/accounts/payer-receipt.ts';
import { Histogram } from '../../../gateway/usage/hour/histogram.ts';
import { shardsBetween, usageShardOf } from '../../../gateway/usage/usage-row.ts';
import { usageTotals } from '../../../gateway/usage/usage-tables.ts';
import { patience } from '../../support/patience.ts';
import { runDurableObjectAlarm, runInDurableObject } from '../support/durable.ts';
import { AT, usageRow as row } from '../support/usage-row.ts';

async function totals() {
  return database(env).select().from(usageTotals);
}

test('a row counts once in the totals, however often it comes; an exact one replaces an estimate', async () => {
  const shard = env.USAGE.getByName('2026-11-20T16');
  await shard.add([row(1), row(2, { estimated: true, completion: 50 }), row(3, { status: 500, aborted: true })]);
  await shard.add([row(1), row(1, { completion: 99 })]);
  expect(await shard.count()).toBe(3);
  await runDurableObjectAlarm(shard);
  const [first, ...none] = await totals();
  expect(none).toEqual([]);
  expect(first).toMatchObject({ day: '2026-11-20', requests: 3, failed: 1, aborted: 1, estimated: 1, completion: 60 });
  await shard.add([row(2), row(2, { estimated: true, completion: 7 })]);
  // The same attempt under another stream.
  await shard.add([row(9, { request: 'r8', estimated: true, completion: 40 })]);
  await shard.add([row(10, { request: 'r8', replaces: 9 })]);
  await runDurableObjectAlarm(shard);
  expect(await totals()).toEqual([
    expect.objectContaining({ requests: 4, estimated: 0, prompt: 40, completion: 20, cached: 4, totalMs: 4_000 }),
  ]);
  expect(await shard.count()).toBe(4);
  // The future alarm that ends the hour's records does not delay new ones.
  await shard.add([row(11)]);
  await vi.waitFor(async () => expect((await totals())[0]?.requests).toBe(5), { timeout: patience(30_000) });
});

test('totals go by day and model, in batches of three hundred', async () => {
  const shard = env.USAGE.getByName('2026-11-21T00');
  const at = Date.parse('2026-11-21T00:00:01Z');
  await shard.add(Array.from({ length: 700 }, (_, n) => row(n, { at, model: `m${n % 350}`, user: 'u', project: 'p' })));
  for (let n = 0; n < 3; n++) await runDurableObjectAlarm(shard);
  const mine = (await totals()).filter(({ day }) => day === '2026-11-21');
  expect(mine).toHaveLength(350);
  expect(mine.every(({ requests, user }) => requests === 2 && user === 'u')).toBe(true);
});

test('a workload is told of the window alone, model by model', async () => {
  const shard = env.USAGE.getByName('2026-11-22T00');
  const at = Date.parse('2026-11-22T00:10:00Z');
  await shard.add([1, 2, 3, 4].map((n) => row(n, { at: at + n, prompt: n * 100 })));
  await shard.add([row(5, { at: at + 10_000 }), row(6, { at, model: 'other' })]);
  const found = await shard.workload(at + 1, at + 10_000);
  expect(found.map(({ model, requests }) => [model, requests])).toEqual([['m', 4]]);
  const input = new Histogram();
  for (const one of found) input.merge(one.input);
  expect(input.mean).toBe(250);
  expect(input.deviation).toBeCloseTo(111.8, 1);
});

test('a workload by counted minutes is the one of the records, to the millisecond, corrections included', async () => {
  const shard = env.USAGE.getByName('2026-11-23T00');
  const begin = Date.parse('2026-11-23T00:00:00Z');
  const rows = Array.from({ length: 400 }, (_, n) =>
    row(n, {
      at: begin + n * 7_919,
      model: `m${n % 3}`,
      prompt: 1 + ((n * 37) % 500),
      completion: n % 90,
      estimated: n % 5 === 0,
    }),
  );
  await shard.add(rows);
  // Estimates that became exact, under their own stream and under another one.
  const exact = rows
    .filter(({ estimated }) => estimated)
    .map((one, n) => {
      const better = { ...one, estimated: false, prompt: one.prompt + 1_000 };
      return n % 2 === 0 ? better : { ...better, stream: one.stream + 10_000, replaces: one.stream };
    });
  await shard.add(exact);
  const now = [...rows.filter(({ estimated }) => !estimated), ...exact];
  for (const [from, to] of [
    [0, 3_600_000],
    [61_000, 1_500_123],
    [30_000, 59_000],
    [60_000, 120_000],
    [59_999, 60_001],
    [90_000, 121_000],
    [5, 5],
  ] as const) {
    const wanted = new Map<string, { requests: number; input: Histogram; output: Histogram }>();
    for (const { at, model, prompt, completion } of now) {
      if (at < begin + from || at >= begin + to) continue;
      const known = wanted.get(model) ?? { requests: 0, input: new Histogram(), output: new Histogram() };
      wanted.set(model, known);
      known.requests++;
      known.input.add(prompt);
      known.output.add(completion);
    }
    const found = await shard.workload(begin + from, begin + to);
    const counted = found.filter(({ requests }) => requests > 0);
    expect(counted.map(({ model, requests }) => [model, requests]).sort()).toEqual(
      [...wanted].map(([model, { requests }]) => [model, requests]).sort(),
    );
    for (const one of counted) {
      const [input, output] = [new Histogram(), new Histogram()];
      input.merge(one.input);
      output.merge(one.output);
      const right = wanted.get(one.model);
      for (const part of [0.1, 0.5, 0.95, 1]) {
        expect(input.percentile(part)).toBe(right?.input.percentile(part));
        expect(output.percentile(part)).toBe(right?.output.percentile(part));
      }
      expect(input.mean).toBeCloseTo(right?.input.mean ?? -1);
      expect(output.deviation).toBeCloseTo(right?.output.deviation ?? -1);
    }
  }
});

test('percentiles of a histogram are within 2.6 per cent, also when it was put together from parts', () => {
  const whole = new Histogram();
  const [a, b] = [new Histogram(), new Histogram()];
  for (let n = 1; n <= 10_000; n++) (n % 3 === 0 ? a : b).add(n);
  whole.merge(a.state());
  whole.merge(b.state());
  for (const part of [0.01, 0.5, 0.95, 1]) {
    expect(Math.abs(whole.percentile(part) / (part * 10_000) - 1)).toBeLessThan(0.026);
  }
  expect(new Histogram().percentile(0.5)).toBe(0);
});

test('a receipt opens only with the secret that sealed it, and a changed one names no payer', async () => {
  const identity = {
    keyId: 'key_1',
    userId: 'user_1',
    projectId: '',
    subject: 'key:key_1',
    traced: true,
    prefixes: true,
    counted: { user: true, model: false, gpu: true },
  };
  const seal = await sealIdentity('secret', identity);
  const receipt = receiptOf(seal, 'org/mo del\n', true);
  const opened = async (secret: string, text: string) =>
    readReceipt(text, await openIdentity(secret, receiptSealOf(text)));
  expect(receipt).not.toContain('key_1');
  expect(await opened('secret', receipt)).toEqual({ ...identity, model: 'org/mo del\n', untracked: true });
  const nobody = { keyId: '', subject: '' };
  expect(await opened('another', receipt)).toMatchObject(nobody);
  const forged = `${seal.slice(0, -6)}AAAA${seal.slice(-2)}\n+\nm`;
  expect(await opened('secret', forged)).toMatchObject(nobody);
  for (const text of ['', 'x', 'a.b', '..\n+', '{}']) {
    expect(await opened('secret', text)).toMatchObject(nobody);
  }
  const ids = { keyId: `key_${'a'.repeat(24)}`, userId: `user_${'b'.repeat(24)}`, projectId: `proj_${'c'.repeat(24)}` };
  for (const subject of ['', `key:${ids.keyId}`, `user:${ids.userId}`, `project:${ids.projectId}`])
    for (const flag of [true, false]) {
      const counted = { user: flag, model: !flag, gpu: flag };
      const whole: ReceiptIdentity = { ...ids, subject, traced: !flag, prefixes: flag, counted };
      const sealed = await sealIdentity('secret', whole);
      expect(await openIdentity('secret', sealed)).toEqual(whole);
      expect(sealed.length, 'it travels with every request').toBeLessThan(200);
    }
  const earlier = await sealText('secret', 'receipt', JSON.stringify(['key_1', 'user_1', '', 'key:key_1', true]));
  expect(await openIdentity('secret', earlier)).toMatchObject({ subject: 'key:key_1', traced: true, prefixes: false });
  const long = receiptOf(seal, 'm'.repeat(256), false);
  expect(long.length).toBeLessThan(1_024);
  const sampling = { temperature: 0.5 };
  for (const said of [{ sampling }, { kind: 'long prompt, "short" answer' }, { sampling, kind: 'k' }])
    expect(await opened('secret', receiptOf(seal, 'm', false, said))).toMatchObject(said);
  expect(await opened('secret', receiptOf(seal, 'm', true, { sampling, kind: 'k' }))).toMatchObject({
    model: 'm',
    untracked: true,
  });
});

const KINDS = [
  { name: 'short', input: 100, output: 100, share: 0.5 },
  { name: 'long', input: 8_000, output: 100, share: 0.5 },
];

test('a workload by kind counts requests where they came, by what their lengths turned out to be', async () => {
  const shard = env.USAGE.getByName('2026-11-22T03');
  const at = Date.parse('2026-11-22T03:10:00Z');
  const kinds = { m: KINDS };
  await shard.add([
    row(1, { at: at + 1_000, prompt: 90, completion: 120, totalMs: 500, kind: 'short' }),
    row(2, { at: at + 2_000, prompt: 7_000, completion: 90, totalMs: 1_500, kind: 'short' }),
    // It arrived in the minute before.
    row(3, { at: at + 3_000, prompt: 9_000, completion: 90, totalMs: 4_000, kind: 'long' }),
    row(4, { at: at + 4_000, prompt: 0, completion: 0, status: 500, kind: 'long' }),
    row(5, { at: at + 5_000, session: '', error: 'no_capacity', times: 3, totalMs: 0 }),
    row(6, { at: at + 6_000, session: '', error: 'rate_limited', totalMs: 0 }),
    row(7, { at: at + 7_000, model: 'without' }),
  ]);
  const [m, without] = await shard.kindWorkload(at, at + 60_000, { slotMs: 60_000, kinds });
  const minute = at / 60_000;
  expect(Object.keys(m?.slots ?? {})).toEqual([String(minute - 1), String(minute)]);
  expect(m?.slots[minute]).toMatchObject({ requests: [1, 2], unserved: 3 });
  expect(m?.slots[minute - 1]).toMatchObject({ requests: [0, 1], unserved: 0 });
  expect(m?.confusion).toEqual([
    [1, 0],
    [1, 1],
  ]);
  expect(without?.slots[minute]).toMatchObject({ requests: [1] });
});

test('an hour that is older than records are kept is gone, its totals stay; one that was only asked about never was', async () => {
  const at = Date.parse('2020-01-01T05:00:00Z');
  const shard = env.USAGE.getByName('2020-01-01T05');
  await shard.add([row(1, { at, key: 'old' })]);
  await runDurableObjectAlarm(shard);
  expect(await shard.count()).toBe(0);
  expect((await totals()).find(({ key }) => key === 'old')).toMatchObject({ requests: 1 });
  await shard.add([row(2, { at, key: 'late' })]);
  expect(await shard.count()).toBe(1);
  const nothing = env.USAGE.getByName('2019-01-01T05');
  expect([await nothing.count(), await nothing.workload(0, at), await nothing.page(0, 10, false)]).toEqual([0, [], []]);
  expect(await runDurableObjectAlarm(nothing)).toBe(false);
});

test.each([
  [399, 1],
  [401, 0],
])('after %i days of the 400 an hour has %i of its records', async (days, left) => {
  const at = Date.now() - days * 86_400_000;
  const shard = env.USAGE.getByName(usageShardOf(at));
  await shard.add([row(1, { at, key: `aged-${days}` })]);
  await runDurableObjectAlarm(shard);
  expect(await shard.count()).toBe(left);
});

test('where no record is kept at all every one of them is in the totals', async () => {
  const name = '2026-11-19T07';
  const shard = env.USAGE.getByName(name);
  for (let n = 0; n < 3; n++) {
    // As its environment would set it.
    await runInDurableObject(shard, (object) => Object.assign(Reflect.get(object, 'env'), { USAGE_KEPT_DAYS: '0' }));
    await shard.add([row(n, { at: Date.parse(`${name}:10:00Z`) })]);
    await runDurableObjectAlarm(shard);
    expect(await shard.count()).toBe(0);
  }
  const mine = (await totals()).filter(({ day }) => day === '2026-11-19');
  expect(mine).toMatchObject([{ requests: 3 }]);
});

test('hours are cut in UTC', () => {
  expect(usageShardOf(AT)).toBe('2026-11-20T16');
  expect(shardsBetween(AT, AT + 2 * 3_600_000)).toEqual(['2026-11-20T16', '2026-11-20T17', '2026-11-20T18']);
  expect(shardsBetween(Date.parse('2026-11-20T23:59:59Z'), Date.parse('2026-11-21T00:00:00Z'))).toHaveLength(2);
});
