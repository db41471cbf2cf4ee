import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { seedKey } from '../accounts/seed.ts';
import { good, knock, refusal } from './support.ts';

let key: string;
beforeAll(async () => {
  key = (await seedKey('operator')).key;
});

const admin = (method: string, body?: unknown) =>
  knock(method, '/admin/timeline', { key, ...(body === undefined ? {} : { body }) });
const anything = z.looseObject({});

const slot = (minute: number, more: object = {}) => ({
  at: `2026-11-20T10:${String(minute).padStart(2, '0')}:00.000Z`,
  requests: [5, 7],
  expected: {
    at: `2026-11-20T10:${String(minute + 2).padStart(2, '0')}:00.000Z`,
    mean: [5, 7],
    low: [1, 2],
    high: [9, 9],
  },
  replicas: { 'TP 2': 3 },
  decision: 'keep',
  why: 'the current layout is the best for the forecast',
  changes: [],
  p50_ms: 400,
  p99_ms: 900,
  ...more,
});
const timeline = (slots: object[], more: object = {}) => ({
  data: [{ model: 'org/m', slot_ms: 60_000, kinds: ['a', 'b'], slots, ...more }],
});

test('slots of a timeline add up; one that is told again is replaced, other kinds begin it anew', async () => {
  await good(admin('PUT', timeline([slot(1), slot(2)])), anything);
  await good(
    admin('PUT', timeline([slot(2, { requests: [6, 8] }), slot(3, { decision: 'switch', changes: ['done: stop'] })])),
    anything,
  );
  const unseen = slot(4, { requests: [null, null], p50_ms: null, p99_ms: null });
  await good(admin('PUT', timeline([unseen])), anything);
  const { data } = await good(admin('GET'), z.object({ data: z.array(z.looseObject({ slots: z.array(anything) })) }));
  expect(data[0]).toMatchObject({ model: 'org/m', slot_ms: 60_000, kinds: ['a', 'b'] });
  expect(data[0]?.slots).toEqual([
    slot(1),
    slot(2, { requests: [6, 8] }),
    slot(3, { decision: 'switch', changes: ['done: stop'] }),
    unseen,
  ]);
  await good(admin('PUT', timeline([slot(4, { requests: [1] })], { kinds: ['c'] })), anything);
  const again = await good(admin('GET'), z.object({ data: z.array(z.looseObject({ slots: z.array(anything) })) }));
  expect(again.data[0]?.slots).toHaveLength(1);
});

test('four hours of minutes are kept, and no more', async () => {
  const at = (n: number) => new Date(Date.parse('2026-11-20T00:00:00Z') + n * 60_000).toISOString();
  const many = (from: number) => Array.from({ length: 200 }, (_, n) => slot(1, { at: at(from + n) }));
  for (const from of [0, 200]) await good(admin('PUT', timeline(many(from), { model: 'org/long' })), anything);
  const { data } = await good(
    admin('GET'),
    z.object({ data: z.array(z.looseObject({ slots: z.array(z.looseObject({ at: z.string() })) })) }),
  );
  const long = data.find(({ model }) => model === 'org/long');
  expect([long?.slots.length, long?.slots[0]?.at]).toEqual([240, at(160)]);
});

test.each([
  ['a decision that is none', slot(1, { decision: 'perhaps' })],
  ['requests below nothing', slot(1, { requests: [-1] })],
  ['a text without end', slot(1, { why: 'x'.repeat(2_001) })],
])('a slot with %s is refused', async (_, one) => {
  await refusal(admin('PUT', timeline([one])), 400, 'invalid_request');
});
