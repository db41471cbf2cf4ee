import { env } from 'cloudflare:workers';
import { afterEach, expect, test, vi } from 'vitest';
import { forecastTokens } from '../../../gateway/accounts/limits/limit-reservation.ts';
import type { LimitVerdict, Reservation } from '../../../gateway/accounts/limits/limiter.ts';
import type { AttemptSettlement, LimitsObject } from '../../../gateway/accounts/limits/limits-object.ts';
import type { ObjectStub } from '../../../gateway/platform/object-context.ts';
import type { Limits } from '../../../gateway/settings/limits-schema.ts';
import { evictDurableObject, runInDurableObject } from '../support/durable.ts';

afterEach(() => {
  vi.useRealTimers();
});

let subjects = 0;
let nodes = 0;
function object(): ObjectStub<LimitsObject> {
  return env.LIMITS.getByName(`key:test-${++subjects}`);
}

/** For a prompt of `tokens` tokens, without a response. */
const ask = (name: string, key: Limits, project?: Limits, tokens = 10, keyId = 'k'): Reservation => ({
  name,
  keyId,
  key,
  project,
  bodyBytes: 4 * tokens,
  maxTokens: undefined,
  counts: 'prompt',
});

async function many(count: number, reserve: (n: number) => Promise<LimitVerdict>): Promise<number> {
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

test('a returned place goes to a request that waits for it', async () => {
  const limits = { concurrent_requests: 1 };
  const counter = object();
  expect((await counter.reserve(ask('a', limits))).granted).toBe(true);
  const next = counter.reserve(ask('b', limits));
  await counter.release('a', 1);
  expect((await next).granted).toBe(true);
});

const settlement = (
  name: string,
  prompt: number,
  completion: number,
  more: Partial<AttemptSettlement> = {},
): AttemptSettlement => ({
  name,
  attempt: 1,
  keyId: 'k',
  prompt,
  completion,
  isComplete: true,
  isReserved: true,
  at: Date.now(),
  ...more,
});

test('a settlement that is said again counts once, and one that replaces an estimate by its difference', async () => {
  const counter = object();
  await counter.reserve(ask('a', { tokens_per_month: 1_000 }));
  const settle = (position: number, more: Partial<AttemptSettlement> = {}) => ({
    position,
    settlement: settlement(`a${position}`, 60, 40, more),
  });
  await counter.settle('node', [settle(1), settle(2)]);
  await counter.settle('node', [settle(1), settle(2), settle(3)]);
  await counter.settle('node', [settle(4, { before: { prompt: 60, completion: 30 } })]);
  // Positions count by source. An attempt that another source settled counts once.
  await counter.settle('other', [{ position: 1, settlement: settlement('b', 60, 40) }]);
  await counter.settle('third', [settle(1)]);
  // With the 10 tokens of the request that still runs.
  const limits = { tokens_per_month: 1_000 };
  expect(await counter.uses({ keyId: 'k', key: limits, project: limits })).toMatchObject({
    key: [{ used: 420 }],
    project: [{ used: 420 }],
  });
});

test('audio and images count once, also if another source estimated the attempt before', async () => {
  const counter = object();
  const key = { audio_seconds_per_month: 100, images_per_month: 100 };
  await counter.reserve(ask('a', key));
  const estimate = settlement('a', 0, 5, { isComplete: false });
  const exact = settlement('a', 0, 20, { audioMs: 7_000, images: 2 });
  for (const [source, settled] of [
    ['node', estimate],
    ['other', exact],
    ['third', exact],
    ['node', exact],
  ] as const)
    await counter.settle(source, [{ position: source === 'node' ? ++nodes : 1, settlement: settled }]);
  expect(await counter.uses({ keyId: 'k', key, project: undefined })).toMatchObject({
    key: [{ used: 7 }, { used: 2 }],
  });
});

test('a request that never began gives its tokens back', async () => {
  const limits = { tokens_per_minute: 100 };
  const counter = object();
  expect((await counter.reserve(ask('a', limits, undefined, 100))).granted).toBe(true);
  expect((await counter.reserve(ask('b', limits, undefined, 50))).granted).toBe(false);
  await counter.release('a', 0);
  expect((await counter.reserve(ask('c', limits, undefined, 100))).granted).toBe(true);
});

test('a request that only lacks what others reserve too much waits for what they turn out to use', async () => {
  const limits = { tokens_per_minute: 100 };
  const counter = object();
  expect((await counter.reserve(ask('a', limits, undefined, 90))).granted).toBe(true);
  const next = counter.reserve(ask('b', limits, undefined, 90));
  await counter.correct([settlement('a', 10, 0)]);
  expect((await next).granted).toBe(true);
});

test('its forecast takes the length of the body, the bound of its answer and the number of choices', () => {
  const request = (headers: Record<string, string> = {}) => ({ headers: new Headers(headers) });
  const chat = { usage: 'openai', generates: true } as const;
  const kept = { body: { kind: 'kept', bytes: new Uint8Array(400) }, unseen: false } as const;
  const of = (sampling?: object) => forecastTokens(request(), chat, { ...kept, ...(sampling && { sampling }) });
  expect(of()).toEqual({ bodyBytes: 400, maxTokens: undefined, counts: 'answer' });
  expect(of({ max_tokens: 50, n: 3 })).toMatchObject({ maxTokens: 150 });
  expect(of({ max_tokens: -1, n: -1 })).toMatchObject({ maxTokens: undefined });
  expect(of({ max_tokens: 1e308, n: 1e308 })).toMatchObject({ maxTokens: 1_048_576 * 1_024 });
  expect(forecastTokens(request(), { usage: 'openai', generates: false }, kept).counts).toBe('prompt');
  expect(forecastTokens(request(), { usage: 'none', generates: false }, kept).counts).toBe('nothing');
  const opaque = { body: { kind: 'kept', bytes: new Uint8Array(0) }, unseen: true } as const;
  const said = request({ 'content-length': '800', 'x-otela-max-tokens': '70' });
  expect(forecastTokens(said, chat, opaque)).toEqual({ bodyBytes: 800, maxTokens: 70, counts: 'answer' });
  expect(forecastTokens(request(), chat, opaque)).toMatchObject({ bodyBytes: undefined, maxTokens: undefined });
  expect(() => forecastTokens(request({ 'x-otela-max-tokens': '1e9' }), chat, opaque)).toThrow('number of tokens');
});

test('a machine whose clock was ten minutes fast and is set right locks no key for longer than a minute', async () => {
  const limits = { requests_per_minute: 1 };
  const counter = object();
  const right = Date.now();
  vi.useFakeTimers({ toFake: ['Date'], now: right + 600_000 });
  expect((await counter.reserve(ask('a', limits))).granted).toBe(true);
  vi.setSystemTime(right);
  expect(await counter.reserve(ask('b', limits))).toMatchObject({ granted: false, waitMs: 60_000 });
  vi.setSystemTime(right + 60_000);
  expect((await counter.reserve(ask('c', limits))).granted).toBe(true);
});

test('the headers tell what is left of the tighter of two limits', async () => {
  const counter = object();
  const verdict = await counter.reserve(ask('a', { requests_per_minute: 100 }, { requests_per_minute: 3 }));
  expect(verdict.headers).toEqual({
    'x-ratelimit-limit-requests': '3',
    'x-ratelimit-remaining-requests': '2',
    'x-ratelimit-reset-requests': '1m0s',
  });
});

test('a request that runs while its object is evicted keeps its place', async () => {
  const limits = { concurrent_requests: 1 };
  const counter = object();
  expect((await counter.reserve(ask('a', limits))).granted).toBe(true);
  const held = () =>
    runInDurableObject(counter, (_, { storage }) => storage.sql.exec('SELECT name FROM holds').toArray());
  await expect.poll(held).toEqual([{ name: 'a' }]);
  await evictDurableObject(counter);
  expect((await counter.reserve(ask('b', limits))).granted).toBe(false);
  await counter.release('a', 1);
  expect((await counter.reserve(ask('c', limits))).granted).toBe(true);
});
