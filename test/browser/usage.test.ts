/** The usage page, in a real browser against a real gateway with a real agent; the engine is a stand-in. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { MODEL } from '../support/house.ts';
import { eventually } from '../support/processes.ts';
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
  await go(page, 'My use');
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
  const { page, complaints } = await visitors.enter();
  await eventually('the totals', 20_000, async () => {
    await go(page, 'Models');
    await go(page, 'My use');
    await page.getByText('Nothing was used yet').or(page.getByRole('table')).first().waitFor();
    return (await page.getByRole('row', { name: MODEL }).count()) > 0 ? true : undefined;
  });
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'CSV' }).click(),
  ]);
  const csv = readFileSync(await download.path(), 'utf8');
  expect(csv).toMatch(/^model,requests,/);
  expect(csv).toContain(`"${MODEL}",`);
  await page.locator('figure canvas').waitFor();
  expect(complaints).toEqual([]);
});
