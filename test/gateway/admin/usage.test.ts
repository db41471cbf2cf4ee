import { env } from 'cloudflare:workers';
import { beforeAll, expect, test } from 'vitest';
import { z } from 'zod';
import { database } from '../../../gateway/accounts/database.ts';
import { readGatewaySettings } from '../../../gateway/accounts/gateway-settings.ts';
import { type UsageRow, usageShardOf } from '../../../gateway/usage/usage-row.ts';
import { usageTotals } from '../../../gateway/usage/usage-tables.ts';
import { addToTotals, readTotal, usageTotalOf } from '../../../gateway/usage/usage-totals.ts';
import { seedKey } from '../accounts/seed.ts';
import { usageRow } from '../support/usage-row.ts';
import { good, knock, refusal } from './support.ts';

let operator = '';
const COUNTS = { failed: 0, aborted: 0, estimated: 0, prompt: 10, completion: 5, cached: 0, reasoning: 0 };

beforeAll(async () => {
  operator = (await seedKey('operator')).key;
  const rows = Array.from({ length: 12 }, (_, n) => ({
    day: `2026-11-0${1 + (n % 3)}`,
    project: '',
    user: `user_${n % 4}`,
    key: 'k',
    model: 'm',
    provider: 'p',
    requests: n,
    ...COUNTS,
    firstTokenMs: 0,
    totalMs: 0,
  }));
  for (const row of rows) await database(env).insert(usageTotals).values(row);
});

const page = z.object({
  data: z.array(z.looseObject({ requests: z.number() })),
  has_more: z.boolean(),
  next: z.string().nullable(),
});
const usageOf = (query: string) => knock('GET', `/admin/usage?${query}`, { key: operator });
const usage = (more: string, key = operator) =>
  knock('GET', `/admin/usage?from=2026-11-01&to=2026-11-30&${more}`, { key });

test.each(['day,user', 'user', 'user,day', 'model'])('totals by %s page by page are the totals at once', async (by) => {
  const whole = await good(usage(`group_by=${by}`), page);
  expect(whole.next).toBeNull();
  const found: unknown[] = [];
  let after = '';
  for (let more = true; more; ) {
    const part = await good(usage(`group_by=${by}&limit=5${after}`), page);
    expect(part.data.length).toBeLessThanOrEqual(5);
    found.push(...part.data);
    more = part.has_more;
    expect(part.next !== null).toBe(more);
    after = `&after=${part.next}`;
  }
  expect(found).toEqual(whole.data);
  expect(whole.data.reduce((sum, { requests }) => sum + requests, 0)).toBe(66);
});

test('a cursor of another query, or an invented one, is refused', async () => {
  const { next } = await good(usage('group_by=day,user&limit=1'), page);
  await refusal(usage(`group_by=user&after=${next}`), 422, 'unprocessable_content');
  for (const wrong of ['x', '!', 'W10', 'bnVsbA'])
    await refusal(usage(`group_by=user&after=${wrong}`), 422, 'unprocessable_content');
});

test('pages go on behind the longest name that a model can have', async () => {
  const count = { ...COUNTS, requests: 1, firstTokenMs: 0, totalMs: 0 };
  const of = { day: '2026-10-01', project: '', user: '', key: 'ingress:p', provider: 'p' };
  const names = ['\u0001', '\u{1f999}'].map((char) => char.repeat(1024 / char.length));
  for (const model of names)
    await database(env)
      .insert(usageTotals)
      .values({ ...of, ...count, model });
  const ask = (more: string) => knock('GET', `/admin/usage?from=2026-10-01&to=2026-10-01&${more}`, { key: operator });
  const found: unknown[] = [];
  for (let after = ''; ; ) {
    const { data, next } = await good(ask(`group_by=day,model&limit=1${after}`), page);
    found.push(...data.map(({ model }) => model));
    if (next === null) break;
    after = `&after=${next}`;
  }
  expect(found).toEqual(names);
});

test('the trace tells neither a private model nor another name of it', async () => {
  const from = Date.parse('2026-10-02T10:00:00Z');
  const names = ['org/hidden', 'alias-of-it', 'org/open'];
  await good(
    knock('PUT', '/admin/models/org%2Fhidden', { key: operator, body: { private: true, aliases: ['alias-of-it'] } }),
    z.looseObject({}),
  );
  await env.USAGE.getByName(usageShardOf(from)).add(
    names.map((model, n) => usageRow(n, { at: from, model, traced: true })),
  );
  const answer = await knock('GET', '/admin/trace?from=2026-10-02T10:00:00Z&to=2026-10-02T11:00:00Z', {
    key: operator,
  });
  const lines = (await answer.text()).trim().split('\n');
  expect(lines.map((line) => z.looseObject({ model: z.string() }).parse(JSON.parse(line)).model)).toEqual([
    expect.stringMatching(/^[0-9a-f]{16}$/),
    expect.stringMatching(/^[0-9a-f]{16}$/),
    'org/open',
  ]);
});

test('operators see what each peer institution and its projects used, with GPU time', async () => {
  const at = Date.parse('2026-10-05T10:00:00Z');
  const rows = [
    usageRow(1, { at, key: 'peer:psi', project: 'proj_1@psi', gpuMs: 90_000 }),
    usageRow(2, { at, key: 'peer:psi', project: 'proj_2@psi', gpuMs: 30_000 }),
    usageRow(3, { at, key: 'peer:eth', project: '', gpuMs: 2_000 }),
    usageRow(4, { at, key: 'key_1', project: 'proj_3', gpuMs: 1_000 }),
  ];
  await addToTotals(
    env,
    'peers',
    1,
    rows.map((row) => usageTotalOf(row)),
  );
  const { data } = await good(
    knock('GET', '/admin/usage?from=2026-10-05&to=2026-10-05&group_by=peer', { key: operator }),
    page,
  );
  expect(data.map(({ peer, requests, gpu_seconds }) => [peer, requests, gpu_seconds])).toEqual([
    ['', 1, 1],
    ['eth', 1, 2],
    ['psi', 2, 120],
  ]);
  const of = 'from=2026-10-05&to=2026-10-05&group_by=peer,project&peer=psi&limit=1';
  const first = await good(knock('GET', `/admin/usage?${of}`, { key: operator }), page);
  const second = await good(knock('GET', `/admin/usage?${of}&after=${first.next}`, { key: operator }), page);
  expect([...first.data, ...second.data].map(({ project }) => project)).toEqual(['proj_1@psi', 'proj_2@psi']);
  expect(second.next).toBeNull();
});

test('rows of totals lie in the order of their key, and a span of days is read by it', async () => {
  const plan = await env.DB.prepare(
    "EXPLAIN QUERY PLAN SELECT sum(requests) FROM usage_totals WHERE day >= '2026-01-01'",
  ).all();
  expect(JSON.stringify(plan.results)).toContain('USING PRIMARY KEY');
});

test('an unknown value of the default trust means marked providers, not all', async () => {
  const of = async (DEFAULT_TRUST: string) => (await readGatewaySettings({ DB: env.DB, DEFAULT_TRUST })).defaultTrust;
  for (const word of ['marked', 'Marked ', 'none', 'market', 'false'])
    expect([word, await of(word)]).toEqual([word, 'marked']);
  for (const word of ['admitted', '']) expect([word, await of(word)]).toEqual([word, 'admitted']);
  expect((await readGatewaySettings({ DB: env.DB })).defaultTrust).toBe('admitted');
});

test('the mean of whole answers is of requests whose time is known: lines of a batch do not thin it', async () => {
  const row = (more: Partial<UsageRow>) => usageRow(1, { at: Date.UTC(2026, 7, 1), model: 'batched', ...more });
  const rows = [
    row({ totalMs: 3_000 }),
    row({ totalMs: 1_000 }),
    ...Array.from({ length: 98 }, () => row({ totalMs: null, firstMs: null })),
    row({ model: 'only-lines', totalMs: null, firstMs: null }),
  ];
  await addToTotals(
    env,
    'timed',
    1,
    rows.map((one) => usageTotalOf(one)),
  );
  const { data } = await good(usageOf('from=2026-08-01&to=2026-08-01&group_by=model'), page);
  expect(data).toEqual([
    expect.objectContaining({ model: 'batched', requests: 100, mean_total_ms: 2_000 }),
    expect.objectContaining({ model: 'only-lines', requests: 1, mean_total_ms: null }),
  ]);
});

test('a sum that an earlier version left counts all its requests as timed', () => {
  const { timed: _, ...earlier } = usageTotalOf(usageRow(1, { totalMs: 100, times: 3 }));
  expect(readTotal(JSON.stringify(earlier))).toEqual({ ...earlier, timed: 3 });
});

test('the first token is told as the client saw it and as the engine gave it, of the answers that began', async () => {
  const row = (more: Partial<UsageRow>) => usageRow(1, { at: Date.UTC(2026, 8, 1), model: 'waits', ...more });
  const rows = [
    row({ firstMs: 40, queueMs: 2_000, totalMs: 100 }),
    row({ firstMs: 60, totalMs: 100 }),
    row({ firstMs: null, status: null, totalMs: null }),
  ];
  const totals = rows.map((one) => usageTotalOf(one));
  await addToTotals(env, 'first-token', 1, totals.slice(0, 1));
  await addToTotals(env, 'first-token', 2, totals.slice(1));
  const { data } = await good(usageOf('from=2026-09-01&to=2026-09-01&group_by=model'), page);
  expect(data).toEqual([
    expect.objectContaining({
      requests: 3,
      mean_first_token_ms: (2_040 + 60) / 2,
      mean_engine_first_token_ms: 50,
      mean_queue_ms: Math.round(2_000 / 3),
    }),
  ]);
});
