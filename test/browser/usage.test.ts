/** The usage page, in a real browser against a real gateway with a real agent; the engine is a mock. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { z } from 'zod';
import { eventually } from '../support/processes.ts';
import { MODEL } from '../support/test-cluster.ts';
import { go, openDoor } from './visitors.ts';

const visitors = openDoor();

it('a table of several pages is shown and exported whole', async () => {
  const { page } = await visitors.enter();
  await page.route('**/admin/usage?*', (route) => {
    const [, group] = /group_by=(\w+)/.exec(route.request().url()) ?? [];
    const behind = route.request().url().endsWith('&after=more%20');
    const row = { [group ?? '']: group === 'day' ? '2026-11-20' : behind ? 'm-two' : 'm-one', requests: 1 };
    return route.fulfill({ json: { object: 'list', data: [row], next: behind || group === 'day' ? null : 'more ' } });
  });
  await go(page, 'Usage');
  for (const name of ['m-one', 'm-two']) await page.getByRole('row', { name }).waitFor();
});

it('usage is shown by model and as a CSV', async () => {
  expect(
    (
      await visitors.house.ask('/v1/chat/completions', {
        model: MODEL,
        messages: [{ role: 'user', content: 'count me' }],
      })
    ).status,
  ).toBe(200);
  const { page, complaints } = await visitors.enter(visitors.house.key);
  await eventually('the totals', 20_000, async () => {
    await go(page, 'Models');
    await go(page, 'Usage');
    const totals = page.getByRole('region', { name: 'Usage by model' });
    await page.getByText('There is no usage yet').or(totals).first().waitFor();
    return (await totals.getByRole('row', { name: MODEL }).count()) > 0 ? true : undefined;
  });
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'CSV' }).click(),
  ]);
  const csv = readFileSync(await download.path(), 'utf8');
  expect(csv).toMatch(/^model,requests,/);
  expect(csv).toContain(`"${MODEL}",`);
  await page.locator('figure canvas').waitFor();
  expect(complaints).toEqual([]);
});

it('an operator gets the signed statements with each peer institution', async () => {
  const { gateway } = visitors.house;
  await gateway.admin('POST', 'peers', { name: 'psi', root: Buffer.alloc(32, 9).toString('base64url') });
  const { page, complaints } = await visitors.enter(visitors.house.gateway.adminKey);
  await go(page, 'Usage');
  await page.getByText('Everyone', { exact: true }).click();
  const month = new Date().toISOString().slice(0, 7);
  for (const [label, side] of [
    ['Served for psi', 'served'],
    ['Used at psi', 'used'],
  ] as const) {
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('link', { name: label }).click(),
    ]);
    const { statement } = z
      .object({ statement: z.looseObject({ month: z.string(), side: z.string(), size: z.number() }) })
      .parse(JSON.parse(readFileSync(await download.path(), 'utf8')));
    expect(statement).toMatchObject({ month, side, size: 0 });
  }
  expect(complaints).toEqual([]);
});

it('what is left of each limit is shown, with a refusal in words and the own requests alone', async () => {
  const { gateway } = visitors.house;
  const key = await gateway.createKey('thrifty', { limits: { requests_per_minute: 2, tokens_per_month: 100_000 } });
  const ask = () =>
    fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'hello' }], stand_in: { tokens: 3 } }),
    });
  const said = [(await ask()).status, (await ask()).status, (await ask()).status];
  expect(said).toEqual([200, 200, 429]);
  const { page, complaints } = await visitors.enter(key);
  await go(page, 'Usage');
  await page.getByText('0 of 2 left').waitFor();
  await page.getByRole('meter', { name: 'Tokens this month' }).waitFor();
  const requests = page.getByRole('region', { name: 'Last requests' });
  await eventually('the refusal', 20_000, async () => {
    await page.reload();
    await page.getByRole('button', { name: 'Failed' }).click();
    return (
      (await requests.getByText('A limit per minute, or of concurrent requests, was reached.').count()) === 1 ||
      undefined
    );
  });
  await page.getByRole('button', { name: 'All', exact: true }).click();
  await expect.poll(() => requests.getByText('answered').count()).toBe(2);
  await page.getByRole('button', { name: '24 hours' }).click();
  await page.getByRole('img', { name: 'Tokens, 24 hours' }).waitFor();
  expect(complaints).toEqual([]);
});

it('an operator sees the own use first, and the limits and requests of one person never beside the sums of all', async () => {
  const { page } = await visitors.enter();
  const asked: string[] = [];
  page.on('request', (request) => asked.push(request.url().split('/admin/')[1] ?? ''));
  const data = [{ day: '2026-11-20', model: 'm', requests: 1, prompt_tokens: 5 }];
  await page.route('**/admin/usage?*', (route) => route.fulfill({ json: { object: 'list', data, next: null } }));
  await go(page, 'Usage');
  await page.getByRole('heading', { name: 'Remaining limits' }).waitFor();
  await page.getByRole('heading', { name: 'Last requests' }).waitFor();
  expect(asked.filter((one) => one.startsWith('usage?')).every((one) => /&(key|user)=/.test(one))).toBe(true);
  await page.getByRole('button', { name: 'Everyone' }).click();
  await page.getByText('The usage of all users of this gateway.').waitFor();
  expect(await page.getByRole('heading', { name: 'Last requests' }).count()).toBe(0);
  asked.length = 0;
  await page.getByRole('button', { name: '24 hours' }).click();
  await page.getByRole('img', { name: /^Tokens, \d days?$/ }).waitFor();
  // The gateway reports usage by hour only for the user's own.
  expect(asked.filter((one) => one.startsWith('me/'))).toEqual([]);
});

it('what the own usage of a month costs is shown, and not that of others', async () => {
  const { gateway } = visitors.house;
  await gateway.admin('PATCH', 'settings', { prices: { unit: 'SU', rules: [{ request: 1.25 }] } });
  const key = await gateway.createKey('paying', {});
  for (const one of [key, visitors.house.key]) {
    const answer = await fetch(`${gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${one}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: MODEL, messages: [{ role: 'user', content: 'hello' }], stand_in: { tokens: 3 } }),
    });
    expect(answer.status).toBe(200);
  }
  const { page, complaints } = await visitors.enter(key);
  await go(page, 'Usage');
  await eventually('the cost of one request', 20_000, async () => {
    await page.reload();
    await page.getByRole('heading', { name: /^Cost: / }).waitFor();
    return (await page.getByRole('heading', { name: 'Cost: 1.25 SU' }).count()) === 1 || undefined;
  });
  const row = page.getByRole('region', { name: 'Cost by model' }).getByRole('row', { name: MODEL });
  expect(await row.getByRole('cell').allTextContents()).toContain('1.25');
  const link = page.locator('section', { hasText: 'Cost: 1.25 SU' }).getByRole('link', { name: 'CSV' });
  const [download] = await Promise.all([page.waitForEvent('download'), link.click()]);
  expect(readFileSync(await download.path(), 'utf8')).toMatch(/^month,project,/);
  expect(complaints).toEqual([]);
});
