import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { apiKeys, projectMembers, projects, users } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { NO_RESTRICTIONS } from '../../../gateway/admin/field-schemas.ts';
import { pricesSchema } from '../../../gateway/settings/price-settings.ts';
import { type DailyUsage, statementLines, sumAmounts } from '../../../gateway/usage/statement.ts';
import { usageTotals } from '../../../gateway/usage/usage-tables.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock, refusal } from './support.ts';

let operator = '';
const PRICES = {
  unit: 'CHF',
  rules: [
    { models: ['org/a'], providers: ['eth'], to: '2026-11-15', prompt: 0.5, cached: 0.1, completion: 1.5 },
    { models: ['org/*'], prompt: 1, completion: 3, request: 0.001, gpu_hour: 2.5 },
  ],
};

beforeAll(async () => {
  operator = (await seedKey('operator')).key;
  const db = database(env);
  const created = { createdAt: 1, disabledAt: null };
  for (const id of ['proj_a', 'proj_b'])
    await db.insert(projects).values({ ...NO_RESTRICTIONS, id, name: `=name ${id}, "x"`, ...created });
  const zero = { failed: 0, aborted: 0, estimated: 0, reasoning: 0, firstTokenMs: 0, totalMs: 0 };
  // Counts without a pattern, so that amounts have to be rounded.
  for (const [n, project] of ['proj_a', 'proj_b', 'proj_a', ''].entries())
    for (const day of ['2026-10-31', '2026-11-01', '2026-11-15', '2026-11-16', '2026-11-30', '2026-12-01'])
      for (const model of ['org/a', 'org/b', 'free'])
        for (const provider of n === 2 ? ['psi'] : ['eth', ''])
          await db.insert(usageTotals).values({
            ...{ day, project, user: `user_${n}`, key: `key_${n}`, model, provider, ...zero },
            ...{
              requests: 7 + n,
              prompt: 123_457 * (n + 3),
              completion: 77_773 * (n + 1),
              cached: 1_001 * n,
              gpuMs: 1_234_567 * n,
            },
          });
  await good(knock('PATCH', '/admin/settings', { key: operator, body: { prices: PRICES } }), z.unknown());
});

const statement = z.object({
  unit: z.string().nullable(),
  total: z.string(),
  lines: z.array(z.looseObject({ project: z.string().nullable(), model: z.string(), amount: z.string() })),
});
const of = (more: string, key = operator) => knock('GET', `/admin/statements?month=2026-11${more}`, { key });

test('the statements of all projects add up to that of the gateway, and to its usage, to the cent', async () => {
  const whole = await good(of(''), statement);
  expect(whole.unit).toBe('CHF');
  const usage = z.object({ data: z.array(z.looseObject({ project: z.string(), prompt_tokens: z.number() })) });
  const { data } = await good(
    knock('GET', '/admin/usage?from=2026-11-01&to=2026-11-30&group_by=project,model,provider,day', { key: operator }),
    usage,
  );
  const daily = z.array(
    z.object({
      day: z.string(),
      project: z.string(),
      model: z.string(),
      provider: z.string(),
      requests: z.number(),
      prompt_tokens: z.number(),
      cached_tokens: z.number(),
      completion_tokens: z.number(),
    }),
  );
  const gpuMs = ({ project, provider }: { project: string; provider: string }) =>
    1_234_567 * (provider === 'psi' ? 2 : project === 'proj_b' ? 1 : project === '' ? 3 : 0);
  const rows = daily.parse(data).map((row) => ({ ...row, gpu_ms: gpuMs(row) }));
  const expected = statementLines(rows, pricesSchema.parse(PRICES));
  expect(whole.total).toBe(
    sumAmounts(
      expected.map(({ amount }) => amount),
      2,
    ),
  );
  expect(Number(whole.total)).toBeGreaterThan(10);
  const parts = [];
  for (const project of ['proj_a', 'proj_b']) parts.push((await good(of(`&project=${project}`), statement)).total);
  const without = whole.lines.filter(({ project }) => project === null).map(({ amount }) => amount);
  expect(sumAmounts([...parts, ...without], 2)).toBe(whole.total);
});

test('each day has its price, cached tokens have theirs, and a model without a price costs nothing', async () => {
  const { lines } = await good(of('&project=proj_a'), statement);
  const amount = (model: string, provider: string | null) =>
    lines.find((line) => line.model === model && line.provider === provider)?.amount;
  // Two days at the first price, two at the second.
  const [prompt, completion] = [2 * 123_457 * 3, 2 * 77_773];
  const cost = (prompt * 0.5 + completion * 1.5 + prompt * 1 + completion * 3) / 1e6 + 14 * 0.001;
  expect(amount('org/a', 'eth')).toBe(cost.toFixed(2));
  expect(amount('free', 'eth')).toBe('0.00');
  expect(amount('org/a', null)).toBe(((prompt * 2 + completion * 6) / 1e6 + 28 * 0.001).toFixed(2));
});

const NOTHING: DailyUsage = {
  ...{ day: '2026-11-01', project: '', model: 'm', provider: '' },
  ...{ requests: 0, prompt_tokens: 0, cached_tokens: 0, completion_tokens: 0, gpu_ms: 0 },
};
test.each<[string, object, Partial<DailyUsage>, string]>([
  ['half a cent is rounded up', { prompt: 0.005 }, { prompt_tokens: 1_000_000 }, '0.01'],
  ['less than half a cent is rounded down', { prompt: 0.004999999 }, { prompt_tokens: 1_000_000 }, '0.00'],
  [
    'more cached than prompt tokens make no negative amount',
    { prompt: 2, cached: 1 },
    { prompt_tokens: 1e6, cached_tokens: 9e6 },
    '1.00',
  ],
  [
    'counts beyond exact floating-point products are exact',
    { prompt: 0.000000001 },
    { prompt_tokens: 9_007_199_254_740_991 },
    '9.01',
  ],
  ['an hour and a half of one GPU costs one and a half prices', { gpu_hour: 2.01 }, { gpu_ms: 5_400_000 }, '3.02'],
  ['a millisecond of GPU time is not rounded before the line', { gpu_hour: 18 }, { gpu_ms: 999 }, '0.00'],
  ['half a cent of GPU time is rounded up', { gpu_hour: 18 }, { gpu_ms: 1_000 }, '0.01'],
  [
    'tokens and GPU time add up before they are rounded',
    { prompt: 0.004, gpu_hour: 0.004 },
    { prompt_tokens: 1e6, gpu_ms: 3_600_000 },
    '0.01',
  ],
])('%s', (_, price, usage, amount) => {
  const prices = pricesSchema.parse({ unit: 'SU', rules: [price] });
  expect(statementLines([{ ...NOTHING, ...usage }], prices)).toMatchObject([{ amount }]);
});

test('the CSV has one line for each project, model and provider, and no formula', async () => {
  const response = await of('&project=proj_b&format=csv');
  expect(response.headers.get('content-type')).toBe('text/csv; charset=utf-8');
  const [head, ...lines] = (await response.text()).trimEnd().split('\r\n');
  expect(head).toBe(
    'month,project,project_name,model,provider,requests,prompt_tokens,cached_tokens,completion_tokens,gpu_seconds,amount,unit',
  );
  expect(lines).toHaveLength(6);
  expect(lines[0]).toMatch(/^2026-11,proj_b,"'=name proj_b, ""x""",free,,32,\d+,\d+,\d+,4938\.268,0\.00,CHF$/);
});

test('a lead sees the statement of the project, others only their own usage', async () => {
  const db = database(env);
  const lead = await seedKey('consumer');
  const ended = {
    limits: null,
    groups: null,
    issuer: null,
    subject: null,
    lastLoginAt: null,
    claimsAt: null,
    disabledAt: null,
  };
  const person = { name: 'Lea', email: null, role: 'consumer' as const, provider: null, projectId: null, createdAt: 1 };
  await db.insert(users).values({ id: 'user_1', ...person, ...ended });
  await db.update(apiKeys).set({ userId: 'user_1' }).where(eq(apiKeys.id, lead.id));
  const own = await good(of('', lead.key), statement);
  expect(new Set(own.lines.map(({ project }) => project))).toEqual(new Set(['proj_b']));
  await refusal(of('&project=proj_a', lead.key), 404, 'not_found');
  await refusal(of('&project=proj_a&own=yes', lead.key), 400, 'invalid_request');
  expect(await good(of('&own=yes', lead.key), statement)).toEqual(own);
  expect((await good(of('&own=yes'), statement)).lines).toEqual([]);
  await db
    .insert(projectMembers)
    .values({ id: 'proj_a/user_1', projectId: 'proj_a', userId: 'user_1', lead: true, claimed: false, createdAt: 1 });
  expect((await good(of('&project=proj_a', lead.key), statement)).lines).not.toEqual([]);
  await refusal(of('&project=proj_b', lead.key), 404, 'not_found');
});

test('a wrong month and wrong prices are refused', async () => {
  await refusal(knock('GET', '/admin/statements?month=2026-13', { key: operator }), 400, 'invalid_request');
  for (const prices of [
    { unit: '' },
    { unit: 'CHF', rules: [{ prompt: -1 }] },
    { unit: 'CHF', rules: [{ prompt: 0.000_000_000_1 }] },
    { unit: 'CHF', rules: Array.from({ length: 501 }, () => ({})) },
  ])
    await refusal(knock('PATCH', '/admin/settings', { key: operator, body: { prices } }), 400, 'invalid_request');
});
