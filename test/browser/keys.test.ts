/** The page of keys, in a real browser against a real gateway with a real agent; the engine is a mock. */
import { expect, it } from 'vitest';
import { eventually } from '../support/processes.ts';
import { go, openDoor } from './visitors.ts';

const visitors = openDoor();

it('a key is made, shown once, works, and is refused after it was revoked', async () => {
  const { page, complaints } = await visitors.enter();
  await go(page, 'Keys');
  await page.getByRole('button', { name: 'New key' }).click();
  await page.getByLabel('Name').fill('paper');
  await page.getByLabel('Requests per minute').fill('100');
  await page.getByRole('button', { name: 'Create' }).click();
  const key = await page.locator('.secret').innerText();
  const ask = () => fetch(`${visitors.house.gateway.url}/v1/models`, { headers: { authorization: `Bearer ${key}` } });
  expect((await ask()).status).toBe(200);
  await page.getByRole('button', { name: 'Done' }).click();
  expect(await page.getByText(key).count()).toBe(0);
  const row = page.getByRole('row', { name: 'paper' });
  expect(await row.innerText()).toContain('100 requests/min');
  await page.getByRole('button', { name: 'Actions for paper' }).click();
  await page.getByRole('menuitem', { name: 'Revoke' }).click();
  await page.getByRole('alertdialog').getByRole('button', { name: 'Revoke' }).click();
  await row.getByText('revoked').waitFor();
  await eventually('its end', 6_000, async () => ((await ask()).status === 401 ? true : undefined));
  expect(complaints).toEqual([]);
});

it('a key that is rotated is shown once as another one, with all its limits', async () => {
  const { page, complaints } = await visitors.enter();
  await go(page, 'Keys');
  await page.getByRole('button', { name: 'New key' }).click();
  await page.getByLabel('Name').fill('robot');
  await page.getByLabel('Concurrent requests').fill('3');
  await page.getByLabel('Tokens per month').fill('9000');
  await page.getByLabel('Trusted providers').fill('lab');
  await page.getByRole('button', { name: 'Create' }).click();
  const first = await page.locator('.secret').innerText();
  const row = page.getByRole('row', { name: 'robot' }).first();
  expect(await row.innerText()).toMatch(/3 concurrent, 9,000 tokens\/month\s+lab/);
  await page.getByRole('button', { name: 'Actions for robot' }).first().click();
  await page.getByRole('menuitem', { name: 'Rotate' }).click();
  await page.getByRole('alertdialog').getByRole('button', { name: 'Rotate' }).click();
  await expect.poll(() => page.locator('.secret').innerText()).not.toBe(first);
  expect(await page.locator('.secret').innerText()).toMatch(/^sk-otela-/);
  expect(complaints).toEqual([]);
});

it('a key whose time is over is no good one, and behind a hundred of them there are more', async () => {
  const { page } = await visitors.enter();
  const plain = {
    ...{ role: 'consumer', models: null, trusted_providers: null, limits: null, last_used_at: null },
    ...{ user_id: null, project_id: null },
  };
  const key = (n: number, expires_at: string | null) => ({
    ...plain,
    id: `key_${n}`,
    name: `key ${n}`,
    prefix: 'sk-otela-aaaaaa',
    created_at: '2026-01-01T00:00:00Z',
    expires_at,
    revoked_at: null,
  });
  await page.route('**/admin/keys?*', (route) => {
    const first = !route.request().url().includes('after=');
    const data = first
      ? Array.from({ length: 100 }, (_, n) => key(n, n === 0 ? '2026-01-02T00:00:00Z' : null))
      : [key(100, '2126-01-01T00:00:00Z')];
    expect(first || route.request().url().endsWith('after=key_99')).toBe(true);
    return route.fulfill({ json: { object: 'list', data, has_more: first } });
  });
  await go(page, 'Keys');
  const over = page.getByRole('row', { name: 'key 0' });
  await over.getByText('expired').waitFor();
  expect(await over.getByRole('button').count()).toBe(0);
  await page.getByRole('button', { name: 'Show more' }).click();
  await page.getByRole('row', { name: 'key 100' }).getByText('active').waitFor();
  expect(await page.getByRole('button', { name: 'Show more' }).count()).toBe(0);
});

it('what the gateway refuses is said, and tried again when asked', async () => {
  const { page } = await visitors.enter();
  let down = true;
  await page.route('**/admin/keys?*', (route) =>
    down
      ? route.fulfill({
          status: 503,
          json: { error: { message: 'The accounts cannot be asked.', code: 'server_is_overloaded' } },
        })
      : route.continue(),
  );
  await go(page, 'Keys');
  await page.getByRole('alert').getByText('The accounts cannot be asked.').waitFor();
  down = false;
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.getByRole('table').waitFor();
  expect(await page.getByRole('alert').count()).toBe(0);
});
