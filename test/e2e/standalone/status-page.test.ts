/** The public status page. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import * as z from 'zod';
import { availabilityOf, DAY_MS, HOUR_MS } from '../../../gateway/status/availability.ts';
import { endAll, eventually } from '../../support/processes.ts';
import { MODEL, openTestCluster, type TestCluster } from '../../support/test-cluster.ts';

let cluster: TestCluster;
beforeAll(async () => {
  cluster = await openTestCluster();
});
afterAll(endAll);

const spans = z.number().nullable();
const reportSchema = z.strictObject({
  object: z.literal('status'),
  checked_at: z.iso.datetime().nullable(),
  banner: z.object({ level: z.string(), text: z.string() }).nullable(),
  models: z.array(
    z.strictObject({
      ...{ id: z.string(), state: z.enum(['up', 'down', 'unknown']), day: spans, week: spans, quarter: spans },
      days: z.array(z.strictObject({ day: z.iso.date(), availability: spans })).length(90),
    }),
  ),
});
const set = (status_page: object | null) => cluster.gateway.admin('PATCH', 'settings', { status_page });
const read = (path: string, headers: Record<string, string> = {}) =>
  fetch(`${cluster.gateway.url}${path}`, { headers });
/** Reads the report until it is as wanted: a change takes up to ten seconds. */
const reportWith = (what: string, isWanted: (report: z.infer<typeof reportSchema>) => boolean) =>
  eventually(what, 90_000, async () => {
    const answer = await read('/status.json');
    if (!answer.ok) return undefined;
    const report = reportSchema.parse(await answer.json());
    return isWanted(report) ? report : undefined;
  });

it('does not exist until an operator makes it', async () => {
  for (const path of ['/status', '/status.json']) expect((await read(path)).status).toBe(404);
});

it('shows chosen models and the banner to everybody, and nothing about people and machines', async () => {
  const text = 'Maintenance on <b>Monday</b> & Tuesday';
  await set({ models: [MODEL, 'org/<script>'], banner: { level: 'warning', text } });
  const report = await reportWith('the first check', ({ checked_at }) => checked_at !== null);
  const [model, missing] = report.models;
  expect(model).toMatchObject({ id: MODEL, state: 'up', day: 1, week: 1, quarter: 1 });
  expect(model?.days.at(-1)?.availability).toBe(1);
  expect(model?.days.at(-3)?.availability).toBeNull();
  expect(missing).toMatchObject({ id: 'org/<script>', state: 'down', day: 0 });
  const answer = await read('/status');
  const html = await answer.text();
  expect(answer.headers.get('content-security-policy')).toMatch(/default-src 'none'; style-src 'sha256-[\w+/=]+'/);
  expect(html).toContain('Maintenance on &#60;b&#62;Monday&#60;/b&#62; &#38; Tuesday');
  expect(html).toContain(`${MODEL}: served`);
  expect(html).not.toContain('<script>');
  const [node] = await cluster.gateway.nodes();
  for (const secret of [cluster.key, cluster.gateway.adminKey, '"lab', node?.session ?? 'none'])
    expect([secret, JSON.stringify(report).includes(secret)]).toEqual([secret, false]);
  const german = await (await read('/status', { 'accept-language': 'xx, de-CH;q=0.9, en' })).text();
  expect(german).toContain(`${MODEL}: verfügbar`);
  expect((await fetch(`${cluster.gateway.url}/status`, { method: 'POST' })).status).toBe(405);
});

it('shows a model that is no longer served, and forgets models that are not chosen', async () => {
  await cluster.agents[0]?.stop();
  const down = await reportWith('the end of the model', ({ models }) => models[0]?.state === 'down');
  expect(down.models[0]?.day).toBeLessThan(1);
  expect(down.models[0]?.day).toBeGreaterThan(0);
  await set({ models: ['org/<script>'] });
  await set({ models: [MODEL] });
  const again = await reportWith('the new list', ({ models }) => models.length === 1 && models[0]?.id === MODEL);
  expect(again.banner).toBeNull();
  await set(null);
  await eventually('the end of the page', 30_000, async () => ((await read('/status')).ok ? undefined : true));
});

it('refuses unusable settings', async () => {
  await expect(set({ models: Array(51).fill('a') })).rejects.toThrow('status_page');
  await expect(set({ models: ['a'], banner: { text: 'a\nb' } })).rejects.toThrow('must be one line');
  await expect(set({ models: ['a'], names: true })).rejects.toThrow('status_page');
});

it('minutes without a check are neither available nor an outage, and a share is not rounded up', () => {
  const now = 1_000 * DAY_MS + 5 * HOUR_MS;
  const hour = now / HOUR_MS;
  expect(availabilityOf([], now)).toMatchObject({ day: null, week: null, quarter: null });
  const checks = [
    { hour, up: 59_999, down: 1 },
    { hour: hour - 48, up: 0, down: 60 },
    { hour: hour - 24 * 95, up: 0, down: 60 },
  ];
  const { day, week, quarter, days } = availabilityOf(checks, now);
  expect([day, week]).toEqual([0.9999, 0.9989]);
  expect(week).toBe(quarter);
  expect(days.slice(-4).map(({ availability }) => availability)).toEqual([null, 0, null, 0.9999]);
});
