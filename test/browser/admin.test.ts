/** An operator's settings, changed only through the page, in a real browser against a real gateway. */
import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import * as z from 'zod';
import { eventually } from '../support/processes.ts';
import { openDoor } from './visitors.ts';

const visitors = openDoor();

async function openTab(page: Page, tab: string): Promise<void> {
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Administration' }).click();
  await page.getByRole('navigation', { name: 'Administration' }).getByRole('link', { name: tab }).click();
  await page.getByRole('heading', { level: 1, name: tab }).waitFor();
}

/** Chooses from the menu of a row. */
async function rowAction(page: Page, row: string, action: string): Promise<void> {
  await page.getByRole('button', { name: `Actions for ${row}` }).click();
  await page.getByRole('menuitem', { name: action }).click();
}

const confirm = (page: Page, action: string) =>
  page.getByRole('alertdialog').getByRole('button', { name: action }).click();

it('a project with a limit, a user in it, and a key for the user, which the limit holds', async () => {
  const { page, complaints } = await visitors.enter();
  await openTab(page, 'Projects');
  await page.getByText('There is no project yet.').waitFor();
  await page.getByRole('button', { name: 'New project' }).click();
  await page.getByLabel('Name').fill('Climate');
  await page.getByLabel('Requests per minute').fill('2');
  await page.getByLabel('Models', { exact: true }).fill('stand-in/model-1');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('row', { name: 'Climate' }).getByText('2 requests/min').waitFor();

  await openTab(page, 'Users');
  await page.getByRole('button', { name: 'New user' }).click();
  await page.getByLabel('Name').fill('Ada Lovelace');
  await page.getByLabel('Email').fill('ada@example.org');
  await page.getByLabel('Project').selectOption('Climate');
  await page.getByRole('button', { name: 'Create' }).click();
  const ada = page.getByRole('row', { name: 'Ada Lovelace' });
  await ada.getByText('Climate').waitFor();

  await rowAction(page, 'Ada Lovelace', 'New key for this user');
  await page.getByRole('dialog').getByLabel('Name').fill('laptop');
  await expect.poll(() => page.getByRole('dialog').getByLabel('User', { exact: true }).inputValue()).toMatch(/^user_/);
  await page.getByRole('button', { name: 'Create' }).click();
  const key = await page.locator('.secret').innerText();
  await page.getByRole('row', { name: 'laptop' }).getByText('Ada Lovelace').waitFor();
  const ask = (model: string) =>
    fetch(`${visitors.house.gateway.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model, messages: [{ role: 'user', content: 'Hi' }] }),
    });
  const statuses = [];
  for (let n = 0; n < 3; n++) statuses.push((await ask('stand-in/model-1')).status);
  expect(statuses).toEqual([200, 200, 429]);
  expect((await ask('another/model')).status).toBe(403);

  await openTab(page, 'Users');
  await rowAction(page, 'Ada Lovelace', 'Disable');
  await confirm(page, 'Disable');
  await ada.getByText('disabled').waitFor();
  await eventually('the end of her key', 6_000, async () =>
    (await ask('stand-in/model-1')).status === 401 ? true : undefined,
  );
  await rowAction(page, 'Ada Lovelace', 'Enable');
  await ada.getByText('active').waitFor();
  await rowAction(page, 'Ada Lovelace', 'Delete');
  await confirm(page, 'Delete');
  await ada.waitFor({ state: 'detached' });
  expect(complaints).toEqual([]);
});

it('a mistake is told in the form, and what was typed stays', async () => {
  const { page } = await visitors.enter();
  await openTab(page, 'Peers');
  await page.getByRole('button', { name: 'Add peer' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Name').fill('uni');
  await dialog.getByLabel('Root key').fill('too-short');
  await dialog.getByRole('button', { name: 'Add peer' }).click();
  await dialog.getByRole('alert').getByText('public key').waitFor();
  expect(await dialog.getByLabel('Name').inputValue()).toBe('uni');
  await dialog.getByLabel('Root key').fill(`${'c'.repeat(42)}E`);
  await dialog.getByRole('button', { name: 'Add peer' }).click();
  await page.getByRole('row', { name: 'uni' }).waitFor();
  await rowAction(page, 'uni', 'Remove');
  await confirm(page, 'Remove');
  await page.getByText('There are no peers').waitFor();

  await openTab(page, 'Projects');
  await page.getByRole('button', { name: 'New project' }).click();
  await page.getByLabel('Name').fill('Lines');
  await page.getByText('Routing and privacy').click();
  await page.getByLabel('Aliases').fill('fast');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('alert').getByText('“fast” does not have the form').waitFor();
  await page.getByLabel('Aliases').fill('fast = stand-in/model-1');
  await page.getByRole('button', { name: 'Create' }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const { data } = z
    .object({ data: z.array(z.object({ name: z.string(), routing: z.unknown() })) })
    .parse(await visitors.house.gateway.admin('GET', 'projects'));
  expect(data.find(({ name }) => name === 'Lines')?.routing).toEqual({ aliases: { fast: 'stand-in/model-1' } });
});

it('routing: an alias that clients use, weights of nodes, a description, and back to the defaults', async () => {
  const { page, complaints } = await visitors.enter();
  const { gateway } = visitors.house;
  await openTab(page, 'Routing');
  const model = 'stand-in/model-1';
  const row = page.getByRole('row', { name: model });
  await rowAction(page, model, 'Edit routing');
  await page.getByLabel('Routing policy').selectOption('round-robin');
  await page.getByLabel('Aliases').fill('small, quick');
  await page.getByLabel('Maximum pause within a response (s)').fill('90');
  await page.getByRole('button', { name: 'Save' }).click();
  await row.getByText('small, quick').waitFor();
  const settings = z.record(z.string(), z.unknown()).parse(await gateway.admin('GET', `models/${model}`));
  expect(settings).toMatchObject({ policy: 'round-robin', aliases: ['small', 'quick'], stall_ms: 90_000 });
  const answer = await eventually('the alias', 6_000, async () => {
    const response = await visitors.house.ask('/v1/chat/completions', {
      model: 'small',
      messages: [{ role: 'user', content: 'Hi' }],
    });
    return response.status === 200 ? response : undefined;
  });
  expect(answer.headers.get('x-otela-served-model') ?? model).toBe(model);

  await rowAction(page, model, 'Edit weights');
  await page.getByRole('group', { name: 'Rule 1' }).getByLabel('Cluster').fill('lab');
  await page.getByRole('group', { name: 'Rule 1' }).getByLabel('Weight').fill('3');
  await page.getByRole('button', { name: 'Add rule' }).click();
  await page.getByRole('group', { name: 'Rule 2' }).getByLabel('GPU').fill('h100');
  await page.getByRole('button', { name: 'Save' }).click();
  await row.getByText('2 rules').waitFor();
  expect(await gateway.admin('GET', `routing/${model}`)).toMatchObject({
    weights: [
      { cluster: 'lab', weight: 3 },
      { gpu: 'H100', weight: 1 },
    ],
  });

  await rowAction(page, model, 'Edit description');
  await page.getByLabel('License').fill('Apache-2.0');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  expect(await gateway.admin('GET', 'model-cards')).toMatchObject({ data: [{ id: model, license: 'Apache-2.0' }] });

  await rowAction(page, model, 'Reset to defaults');
  await confirm(page, 'Reset to defaults');
  await row.getByText('2 rules').waitFor({ state: 'detached' });
  expect(complaints).toEqual([]);
});

it('settings are saved group by group and come back, institution logins too', async () => {
  const { page, complaints } = await visitors.enter();
  const { gateway } = visitors.house;
  await openTab(page, 'Settings');
  const group = (title: string) => page.locator('section').filter({ has: page.getByRole('heading', { name: title }) });
  await page.getByLabel('Public address').fill('https://llm.example.org');
  await page.getByLabel('Trusted by default').selectOption('only providers marked as trusted');
  await group('General').getByRole('button', { name: 'Save' }).click();
  await group('General').getByText('Saved.').waitFor();
  await page.getByLabel('Maximum wait, streaming (s)').fill('45');
  await group('Queue').getByRole('button', { name: 'Save' }).click();
  await group('Queue').getByText('Saved.').waitFor();
  await page.getByRole('button', { name: 'Add login' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('https://llm.example.org/login/callback').waitFor();
  await dialog.getByLabel('Name').fill('Example University');
  await dialog.getByLabel('Client id').fill('opentela');
  await dialog.getByLabel('Issuer').fill('https://login.example.org/realms/staff');
  await dialog.getByText('Roles and projects by claim').click();
  await dialog.getByLabel('Roles').fill('staff = emperor');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await dialog.getByRole('alert').getByText('“emperor” is not a role').waitFor();
  await dialog.getByLabel('Roles').fill('llm-operators = operator\nalps = provider lab');
  await dialog.getByLabel('Role claim').fill('groups');
  await dialog.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('row', { name: 'Example University' }).waitFor();
  expect(await gateway.admin('GET', 'settings')).toMatchObject({
    default_trust: 'marked',
    public_url: 'https://llm.example.org',
    queue: { stream_ms: 45_000, unary_ms: 60_000 },
    oidc: [{ roles: { 'llm-operators': { role: 'operator' }, alps: { role: 'provider', provider: 'lab' } } }],
  });
  await rowAction(page, 'Example University', 'Remove');
  await confirm(page, 'Remove');
  await page.getByText('There is no institution login').waitFor();
  await gateway.admin('PATCH', 'settings', { public_url: null, default_trust: null, queue: null });

  await openTab(page, 'Audit log');
  const changes = page.getByRole('row', { name: 'settings.update' });
  await changes.first().waitFor();
  await page.getByRole('row').getByText('default_trust').first().waitFor();
  await page.getByLabel('Changed object').fill('no-such-thing');
  await page.getByRole('button', { name: 'Show', exact: true }).click();
  await page.getByText('No change matches.').waitFor();
  expect(complaints).toEqual([]);
});

it('people who are no operators have no such page', async () => {
  const { page } = await visitors.enter(visitors.house.key);
  expect(await page.getByRole('link', { name: 'Administration' }).count()).toBe(0);
  await page.goto(`${visitors.house.gateway.url}/#/admin/users`);
  await page.getByText('There is no such page.').waitFor();
});
