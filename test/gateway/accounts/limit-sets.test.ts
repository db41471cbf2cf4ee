/** Limits per user, per model and of GPU time, in addition to those of key and project. */
import { expect, test } from 'vitest';
import type { LimitSet } from '../../../gateway/accounts/limits/limit-subjects.ts';
import {
  Limiter,
  type LimiterStore,
  type Reservation,
  type SettledUse,
} from '../../../gateway/accounts/limits/limiter.ts';

const NOW = { ms: 1_000_000, month: '2026-11' };
const FORECAST = { bodyBytes: 40, maxTokens: undefined, counts: 'prompt' } as const;

const settled = (name: string, more: Partial<SettledUse>): SettledUse => ({
  name,
  attempt: 1,
  keyId: 'k',
  prompt: 1,
  completion: 1,
  isComplete: true,
  isReserved: true,
  gpuMs: 0,
  ageMs: 0,
  month: NOW.month,
  ...more,
});

function opened() {
  const months = new Map<string, number>();
  /** Ids of the ledgers that were read. */
  const read: string[] = [];
  const store: LimiterStore = {
    minute: () => undefined,
    estimator: () => undefined,
    requests: () => [],
    ledger: (id) => ({
      used: (month) => {
        read.push(id);
        return months.get(`${id} ${month}`) ?? 0;
      },
      write: (month, used) => void months.set(`${id} ${month}`, used),
    }),
  };
  let names = 0;
  const limiter = new Limiter(store, NOW);
  const reserve = (asked: Partial<LimitSet & Pick<Reservation, 'media'>>, name = `r${++names}`) =>
    limiter.reserve({ ...FORECAST, name, keyId: 'k', key: undefined, project: undefined, ...asked }, NOW);
  return { limiter, store, months, reserve, read };
}

test('fifty keys of a person share what the person may, and another person in the project has their own', () => {
  const { reserve, limiter } = opened();
  const user = { requests_per_minute: 10 };
  const of = (userId: string) =>
    Array.from({ length: 50 }, (_, n) => reserve({ keyId: `${userId}-${n}`, userId, user })).filter(
      ({ granted }) => granted,
    ).length;
  expect([of('ada'), of('bob')]).toEqual([10, 10]);
  const refused = reserve({ keyId: 'ada-new', userId: 'ada', user });
  expect(refused).toMatchObject({ granted: false, scope: 'user', headers: { 'x-ratelimit-remaining-requests': '0' } });
  const uses = limiter.uses({ keyId: 'ada-new', key: undefined, project: undefined, userId: 'ada', user }, NOW);
  expect(uses).toEqual({ key: [], project: [], user: [{ limit: 'requests_per_minute', allowed: 10, used: 10 }] });
});

test('only the ledgers of limits that are set are read', () => {
  const { reserve, read } = opened();
  reserve({ key: { requests_per_minute: 10 }, project: { tokens_per_minute: 10_000 }, media: 'images' });
  expect(read).toEqual([]);
  reserve({ key: { images_per_month: 10 }, project: { tokens_per_month: 10_000 }, media: 'images' });
  expect(read.sort()).toEqual(['', 'images\nk']);
});

test('a limit of one model holds for it alone; the star is for each other model by itself', () => {
  const { reserve, limiter } = opened();
  const key = { models: { big: { requests_per_minute: 1 }, '*': { requests_per_minute: 2 } } };
  const ask = (model: string) => reserve({ key, model });
  const granted = ['big', 'big', 'a', 'a', 'a', 'b', 'b', 'b'].map((model) => ask(model).granted);
  expect(granted).toEqual([true, false, true, true, false, true, true, false]);
  expect(ask('big')).toMatchObject({ scope: 'key', model: 'big' });
  // A name that every JavaScript object has is a valid name.
  expect(['__proto__', 'constructor'].map((model) => ask(model).granted)).toEqual([true, true]);
  const { key: uses } = limiter.uses({ keyId: 'k', key, project: undefined }, NOW);
  expect(uses).toEqual([{ limit: 'requests_per_minute', allowed: 1, used: 1, model: 'big' }]);
});

test('GPU time is counted once a settlement tells it, ends with the month, and is shared by the keys of a project', () => {
  const { reserve, limiter, months } = opened();
  const project = { gpu_seconds_per_month: 10 };
  expect(reserve({ keyId: 'a', project }, 'r').granted).toBe(true);
  limiter.settle(settled('r', { keyId: 'a', gpuMs: 9_999 }), NOW);
  expect(reserve({ keyId: 'b', project }, 's')).toMatchObject({
    granted: true,
    headers: { 'x-ratelimit-limit-gpu-seconds-month': '10', 'x-ratelimit-remaining-gpu-seconds-month': '0' },
  });
  limiter.settle(settled('s', { keyId: 'b', gpuMs: 1 }), NOW);
  expect(reserve({ keyId: 'c', project })).toMatchObject({
    granted: false,
    shortage: { kind: 'gpu-month', limit: 10 },
  });
  expect(months.get('gpu\n 2026-11')).toBe(10_000);
  const next = { ...NOW, month: '2026-12' };
  expect(limiter.reserve({ ...FORECAST, name: 't', keyId: 'c', key: undefined, project }, next).granted).toBe(true);
});

test('used up audio refuses requests with audio alone, and images those for images; both end with the month', () => {
  const { reserve, limiter, months } = opened();
  const project = { audio_seconds_per_month: 60, images_per_month: 5 };
  expect(reserve({ project, media: 'audioMs' }, 'r').granted).toBe(true);
  limiter.settle(settled('r', { audioMs: 60_000 }), NOW);
  limiter.settle(settled('s', { images: 4 }), NOW);
  expect(reserve({ project, media: 'audioMs' })).toMatchObject({
    granted: false,
    shortage: { kind: 'audio-month', limit: 60 },
    headers: { 'x-ratelimit-remaining-audio-seconds-month': '0', 'x-ratelimit-remaining-images-month': '1' },
  });
  expect([reserve({ project }).granted, reserve({ project, media: 'images' }, 't').granted]).toEqual([true, true]);
  limiter.settle(settled('t', { images: 3 }), NOW);
  expect(reserve({ project, media: 'images' })).toMatchObject({ shortage: { kind: 'images-month', limit: 5 } });
  expect(reserve({ project }).granted).toBe(true);
  expect([months.get('audio\n 2026-11'), months.get('images\n 2026-11')]).toEqual([60_000, 7]);
  const { project: uses } = limiter.uses({ keyId: 'k', key: undefined, project }, NOW);
  expect(uses).toEqual([
    { limit: 'audio_seconds_per_month', allowed: 60, used: 60 },
    { limit: 'images_per_month', allowed: 5, used: 7 },
  ]);
  const asked = { ...FORECAST, name: 'u', keyId: 'k', key: undefined, project, media: 'images' } as const;
  expect(limiter.reserve(asked, { ...NOW, month: '2026-12' }).granted).toBe(true);
});

test('a request that is no longer reserved still counts for its user and its model', () => {
  const { store, reserve } = opened();
  const user = { models: { big: { tokens_per_month: 100 } } };
  // Another limiter over the same store, as if the object had been evicted in between.
  const use = settled('r', { userId: 'ada', model: 'big', prompt: 60, completion: 40 });
  new Limiter(store, NOW).settle(use, NOW);
  expect(reserve({ userId: 'ada', user, model: 'big' })).toMatchObject({ granted: false, scope: 'user', model: 'big' });
  expect(reserve({ userId: 'ada', user, model: 'small' }).granted).toBe(true);
});
