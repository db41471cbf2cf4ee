/** What a peer institution may use follows from its limits and its usage of this month. */
import { env } from 'cloudflare:workers';
import { expect, test, vi } from 'vitest';
import { peerLimitsSchema } from '../../../gateway/settings/peer-limits.ts';
import { allowancesOf, MonthlyPeerUsage } from '../../../gateway/usage/peer-allowances.ts';
import { addToTotals, usageTotalOf } from '../../../gateway/usage/usage-totals.ts';
import { neverRejects } from '../../../shared/timing/in-background.ts';
import { peerAllowancesSchema } from '../../../shared/usage/peer-allowance.ts';
import { usageRow } from '../support/usage-row.ts';

const NOW = Date.parse('2026-03-20T12:00:00Z');
const sum = (project: string, tokens: number, peer = 'psi') => ({
  key: `peer:${peer}`,
  project,
  requests_per_month: 1,
  tokens_per_month: tokens,
  gpu_seconds_per_month: 0,
});

test('limits count what the institution, or its project, used', () => {
  const limits = { psi: { tokens_per_month: 100, share: 0.5, projects: { p1: { tokens_per_month: 60 } } } };
  expect(allowancesOf(limits, [sum('p1@psi', 59), sum('p2@psi', 40)])).toEqual({ psi: { share: 0.5 } });
  expect(allowancesOf(limits, [sum('p1@psi', 60), sum('p1@eth', 999, 'eth')])).toEqual({
    psi: { share: 0.5, projects: { p1: 'tokens_per_month' } },
  });
  expect(allowancesOf(limits, [sum('', 30), sum('p2@psi', 70)])).toEqual({
    psi: { share: 0.5, over: 'tokens_per_month' },
  });
  expect(allowancesOf({ psi: { requests_per_month: 0 } }, [])).toEqual({ psi: { over: 'requests_per_month' } });
  const parts = { psi: { priority: -1, projects: { p1: { share: 0.2 }, p2: { tokens_per_month: 9 } } } };
  const allowances = allowancesOf(parts, [sum('p1@psi', 60)]);
  expect(allowances).toEqual({ psi: { priority: -1, project_shares: { p1: 0.2 } } });
  expect(peerAllowancesSchema.parse(allowances)).toEqual(allowances);
});

test('sums are of this month, read once, and kept while the database is away', async () => {
  const row = (n: number, at: number, more = {}) =>
    usageRow(n, { at, key: 'peer:psi', project: 'p1@psi', prompt: 30, completion: 20, gpuMs: 5_000, ...more });
  const rows = [row(1, NOW), row(2, NOW - 86_400_000), row(3, NOW - 40 * 86_400_000), row(4, NOW, { key: 'key_1' })];
  const totals = rows.map((one) => usageTotalOf(one));
  await addToTotals(env, 'allowances', 1, totals);
  const usage = new MonthlyPeerUsage();
  const limits = (tokens: number, seconds: number) => ({
    psi: { tokens_per_month: tokens, gpu_seconds_per_month: seconds },
  });
  expect(await usage.allowances(env, limits(101, 11), NOW)).toEqual({ psi: {} });
  expect(await usage.allowances(env, limits(100, 11), NOW + 1)).toEqual({ psi: { over: 'tokens_per_month' } });
  const said = vi.spyOn(console, 'error').mockImplementation(() => {});
  const prepare = () => {
    throw new Error('away');
  };
  const away = { DB: { prepare } } as unknown as typeof env;
  expect(await usage.allowances(away, limits(101, 10), NOW + 60_000)).toEqual({
    psi: { over: 'gpu_seconds_per_month' },
  });
  expect(said).toHaveBeenCalled();
  said.mockRestore();
  // Shares need no sums.
  expect(await new MonthlyPeerUsage().allowances(away, { psi: { share: 0.1 } }, NOW)).toEqual({ psi: { share: 0.1 } });
});

test('an agent does not wait for the read of another agent, which may have disconnected', async () => {
  const all = () => new Promise<never>(() => {});
  const statement = { bind: () => statement, all, raw: all, run: all };
  const hanging = { DB: { prepare: () => statement } } as unknown as typeof env;
  const limits = { psi: { tokens_per_month: 0 } };
  const soon = (answer: Promise<unknown>) =>
    Promise.race([answer, new Promise((resolve) => setTimeout(resolve, 2_000, 'waits'))]);
  const expected = { psi: { over: 'tokens_per_month' } };
  const usage = new MonthlyPeerUsage();
  neverRejects(usage.allowances(hanging, limits, NOW));
  expect(await soon(usage.allowances(env, limits, NOW + 1))).toEqual(expected);
  neverRejects(usage.allowances(hanging, limits, NOW + 60_000));
  expect(await soon(usage.allowances(env, limits, NOW + 60_001))).toEqual(expected);
});

test.each([
  [{ psi: { share: 2 } }],
  [{ psi: { priority: 1 } }],
  [{ psi: { priority: -0.5 } }],
  [{ psi: { projects: { p1: { share: -1 } } } }],
  [{ psi: { projects: { p1: { priority: 0 } } } }],
  [{ psi: { tokens_per_month: -1 } }],
  [{ psi: { tokens: 1 } }],
  [{ 'a b': {} }],
  [{ psi: { projects: { 'a@b': {} } } }],
  [Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`p${n}`, {}]))],
])('limits that mean nothing are refused: %j', (limits) => {
  expect(peerLimitsSchema.safeParse(limits).success).toBe(false);
});
