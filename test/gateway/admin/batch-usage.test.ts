/** Usage by batch: which roles see which batches, and with which numbers. */
import { env } from 'cloudflare:workers';
import { eq } from 'drizzle-orm';
import { beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { apiKeys, users } from '../../../gateway/accounts/account-tables.ts';
import { database } from '../../../gateway/accounts/database.ts';
import { batches } from '../../../gateway/files/file-tables.ts';
import { seedKey } from '../accounts/seed.ts';
import { good, knock, refusal } from './support.ts';

const keys: Record<'operator' | 'ada' | 'other', { id: string; key: string }> = {
  operator: { id: '', key: '' },
  ada: { id: '', key: '' },
  other: { id: '', key: '' },
};
const answer = z.object({
  data: z.array(z.looseObject({ id: z.string(), requests: z.number() })),
  has_more: z.boolean(),
});
const asked = (who: keyof typeof keys, query = '') =>
  good(knock('GET', `/admin/usage/batches?from=2026-11-01&to=2026-11-30${query}`, { key: keys[who].key }), answer);
const idsOf = async (who: keyof typeof keys, query = '') => (await asked(who, query)).data.map(({ id }) => id);

beforeAll(async () => {
  const user = 'user_ada';
  await database(env).insert(users).values({ id: user, name: 'ada', role: 'consumer', createdAt: 1 });
  keys.operator = await seedKey('operator');
  keys.ada = await seedKey('consumer');
  await database(env).update(apiKeys).set({ userId: user }).where(eq(apiKeys.id, keys.ada.id));
  keys.other = await seedKey('consumer');
  const rows = [
    ['batch_1', keys.ada.id, 'project:proj_1', '2026-11-01T00:00:00Z', 'm'],
    ['batch_2', user, `user:${user}`, '2026-11-02T10:00:00Z', 'm'],
    ['batch_3', keys.other.id, `key:${keys.other.id}`, '2026-11-30T23:59:59Z', 'n'],
    ['batch_4', keys.other.id, `key:${keys.other.id}`, '2026-12-01T00:00:00Z', 'n'],
  ] as const;
  for (const [id, createdBy, owner, at, model] of rows) {
    const usage = {
      input_tokens: 100,
      input_tokens_details: { cached_tokens: 60 },
      output_tokens: 20,
      output_tokens_details: { reasoning_tokens: 5 },
    };
    const summary = { id, status: 'completed', model, request_counts: { total: 9, completed: 7, failed: 2 }, usage };
    await database(env)
      .insert(batches)
      .values({ id, owner, createdBy, createdAt: Date.parse(at), open: false, summary });
  }
});

it('an operator sees all batches of the days, newest first, each with what it used', async () => {
  const { data } = await asked('operator');
  expect(data.map(({ id }) => id)).toEqual(['batch_3', 'batch_2', 'batch_1']);
  expect(data[2]).toEqual({
    object: 'batch_usage',
    id: 'batch_1',
    day: '2026-11-01',
    status: 'completed',
    project: 'proj_1',
    key: keys.ada.id,
    model: 'm',
    requests: 9,
    failed: 2,
    prompt_tokens: 100,
    completion_tokens: 20,
    cached_tokens: 60,
    reasoning_tokens: 5,
  });
});

it('others see their own: those of their login and of every key of theirs', async () => {
  expect(await idsOf('ada')).toEqual(['batch_2', 'batch_1']);
  expect(await idsOf('other')).toEqual(['batch_3']);
  expect(await idsOf('other', `&key=${keys.ada.id}`)).toEqual([]);
});

it('filters by project, key and model, and comes page by page', async () => {
  expect(await idsOf('operator', '&project=proj_1')).toEqual(['batch_1']);
  expect(await idsOf('operator', `&key=${keys.other.id}`)).toEqual(['batch_3']);
  expect(await idsOf('operator', '&model=m')).toEqual(['batch_2', 'batch_1']);
  const first = await asked('operator', '&limit=2');
  expect(first.has_more).toBe(true);
  expect(await idsOf('operator', `&limit=2&after=${first.data.at(-1)?.id}`)).toEqual(['batch_1']);
});

it('an invalid day is refused', async () => {
  await refusal(
    knock('GET', '/admin/usage/batches?from=yesterday', { key: keys.operator.key }),
    400,
    'invalid_request',
  );
});
