/** Lines of batches count for the month's tokens and GPU-seconds, and wait if these are used up. */
import { expect, test } from 'vitest';
import { type AccountLimits, BOOTSTRAP_ACCOUNT } from '../../../gateway/accounts/account.ts';
import type { LimitSet } from '../../../gateway/accounts/limits/limit-subjects.ts';
import { Limiter } from '../../../gateway/accounts/limits/limiter.ts';
import type { BatchSpec } from '../../../gateway/batch/batch-spec.ts';
import { settlementOf } from '../../../gateway/batch/batch-usage-outbox.ts';
import { MonthlyBudget } from '../../../gateway/batch/monthly-budget.ts';
import type { Env } from '../../../gateway/env.ts';
import type { UsageRow } from '../../../gateway/usage/usage-row.ts';

const NOW = { ms: 1_000_000, month: '2026-11' };

/** The budget of a batch of `models` after its lines of `model` have used `tokens` and GPU time. */
async function budgetAfter(
  key: AccountLimits['key'],
  model: string,
  { tokens = 1, gpuMs = 0 },
  models: readonly string[],
): Promise<MonthlyBudget> {
  const months = new Map<string, number>();
  const store = {
    minute: () => undefined,
    estimator: () => undefined,
    requests: () => [],
    ledger: (id: string) => ({
      used: (month: string) => months.get(`${id} ${month}`) ?? 0,
      write: (month: string, used: number) => void months.set(`${id} ${month}`, used),
    }),
  };
  const limiter = new Limiter(store, NOW);
  const limits = { subject: 'key:k', key, project: undefined };
  const spec = { id: 'batch_a', account: { ...BOOTSTRAP_ACCOUNT, keyId: 'k', limits } } as BatchSpec;
  const rows = [{ prompt: tokens - 1, completion: 1 }] as UsageRow[];
  const settlement = settlementOf(spec, { position: 1, at: NOW.ms }, model, rows);
  limiter.settle({ ...settlement, gpuMs, ageMs: 0, month: NOW.month }, NOW);
  const LIMITS = { getByName: () => ({ uses: async (asked: LimitSet) => limiter.uses(asked, NOW) }) };
  const budget = new MonthlyBudget();
  await budget.refresh({ LIMITS } as unknown as Pick<Env, 'LIMITS'>, 'k', limits, models);
  return budget;
}

/** True if a batch of `models` waits after its lines of `model` have used `tokens`. */
async function waits(key: AccountLimits['key'], model: string, tokens: number, models: readonly string[]) {
  return (await budgetAfter(key, model, { tokens }, models)).isUsedUp(0);
}

test.each([
  ['all models', { tokens_per_month: 100 }],
  ['the model', { models: { m: { tokens_per_month: 100 } } }],
  ['each model', { models: { '*': { tokens_per_month: 100 } } }],
])('a batch waits once its lines have used the month’s tokens of %s', async (_, key) => {
  expect(await waits(key, 'm', 99, ['m'])).toBe(false);
  expect(await waits(key, 'm', 100, ['m'])).toBe(true);
  expect(await waits(key, 'm', 100, ['other', 'm'])).toBe(true);
});

test('the month’s tokens of another model are another model’s', async () => {
  const models = { m: { tokens_per_month: 100 }, '*': { tokens_per_month: 100 } };
  expect(await waits({ models }, 'm', 100, ['other'])).toBe(false);
  expect(await waits({ models }, 'other', 100, ['m'])).toBe(false);
});

test('without a monthly limit none waits', async () => {
  expect(await waits({ requests_per_minute: 1 }, 'm', 1_000_000, ['m'])).toBe(false);
});

test('the month’s GPU-seconds end with those that lines used, also between two readings', async () => {
  const key = { gpu_seconds_per_month: 10 };
  expect((await budgetAfter(key, 'm', { gpuMs: 10_000 }, ['m'])).isGpuTimeUsedUp).toBe(true);
  const budget = await budgetAfter(key, 'm', { gpuMs: 9_000 }, ['m']);
  expect(budget.isGpuTimeUsedUp).toBe(false);
  budget.spend(0, 1_000);
  expect(budget.isGpuTimeUsedUp).toBe(true);
  expect((await budgetAfter({ tokens_per_month: 5 }, 'm', { gpuMs: 9_000 }, ['m'])).isGpuTimeUsedUp).toBe(false);
});
