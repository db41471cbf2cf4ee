/**
 * Projects, requests for access and the catalog, in a real browser against a real gateway; users have tokens of a real
 * provider.
 */
import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { z } from 'zod';
import { openPage } from '../support/browser.ts';
import { AUDIENCE, CLIENT_ID, Identity } from '../support/identity.ts';
import { MODEL } from '../support/test-cluster.ts';
import { go, openDoor } from './visitors.ts';

const visitors = openDoor();
const idSchema = z.object({ id: z.string() });
const made = async (path: string, body: object) =>
  idSchema.parse(await visitors.house.gateway.admin('POST', path, body)).id;

/** Logged-in users, each in a separate page. */
async function people() {
  const { gateway } = visitors.house;
  const identity = await Identity.start({ redirectUri: `${gateway.url}/login/callback`, people: {} });
  const issuer = { issuer: identity.issuer, name: 'University', client_id: CLIENT_ID, audience: AUDIENCE };
  await gateway.admin('PATCH', 'settings', { oidc: [{ ...issuer, admits: 'known' }] });
  return async (name: string) => {
    const id = await made('users', { name, issuer: identity.issuer, subject: name });
    const headers = { authorization: `Bearer ${await identity.token({ sub: name, name })}` };
    const { page, complaints } = await openPage(visitors.browser, { extraHTTPHeaders: headers });
    await page.goto(gateway.url);
    await page.locator('#main').waitFor();
    return { id, page, complaints };
  };
}

const rowOf = (page: Page, name: string) => page.getByRole('row').filter({ hasText: name });

it('a person asks for a project, its lead lets them in and out, and each sees what became of it', async () => {
  const come = await people();
  const [lead, bob] = [await come('Lisa Lead'), await come('Bob')];
  const project = await made('projects', { name: 'Physics' });
  await visitors.house.gateway.admin('PUT', `projects/${project}/members/${lead.id}`, { lead: true });

  await go(bob.page, 'Access');
  await bob.page.getByText('You are not a member of a project').waitFor();
  await bob.page.getByText(`Your id is ${bob.id}`).waitFor();
  await bob.page.getByRole('button', { name: 'Request access' }).click();
  const form = bob.page.getByRole('dialog');
  await form.getByRole('button', { name: 'Request access' }).click();
  await form.getByRole('alert').getByText('a project, a model or a provider').waitFor();
  await form.getByLabel('Project id').fill(project);
  await form.getByLabel('Reason').fill('a thesis on engines');
  await form.getByRole('button', { name: 'Request access' }).click();
  await rowOf(bob.page, 'a thesis').getByText('open').waitFor();
  expect(await bob.page.getByRole('button', { name: 'Approve' }).count()).toBe(0);
  await bob.page.getByRole('button', { name: 'Request access' }).click();
  await form.getByLabel('Model').fill('org/mistaken');
  await form.getByRole('button', { name: 'Request access' }).click();
  const mistaken = rowOf(bob.page, 'org/mistaken');
  await mistaken.getByRole('button', { name: 'Withdraw' }).click();
  await mistaken.getByText('refused').waitFor();

  await go(lead.page, 'Access');
  const request = rowOf(lead.page, 'a thesis on engines');
  expect(await request.innerText()).toContain('Bob');
  await request.getByRole('button', { name: 'Approve' }).click();
  await request.getByText('approved').waitFor();
  expect(await lead.page.getByRole('button', { name: 'Refuse' }).count()).toBe(0);
  await lead.page.getByRole('button', { name: 'Members of Physics' }).click();
  await rowOf(lead.page, bob.id).waitFor();
  await bob.page.reload();
  await bob.page.getByRole('listitem').filter({ hasText: 'Physics' }).getByText('member').waitFor();

  // Bob has no home project; he makes a key in this one.
  await go(bob.page, 'Keys');
  await bob.page.getByRole('button', { name: 'New key' }).first().click();
  await bob.page.getByRole('dialog').getByLabel('Name').fill('thesis');
  await bob.page.getByRole('dialog').getByRole('button', { name: 'Create' }).click();
  await bob.page.getByText('Your new key.').waitFor();
  const keys = await visitors.house.gateway.admin('GET', `keys?user_id=${bob.id}`);
  expect(keys).toMatchObject({ data: [{ name: 'thesis', project_id: project }] });

  const actions = lead.page.getByRole('button', { name: 'Actions for Bob' });
  await actions.click();
  expect(await lead.page.getByRole('menuitem').allTextContents()).toEqual(['Limits', 'Remove']);
  await lead.page.getByRole('menuitem', { name: 'Limits' }).click();
  const limits = lead.page.getByRole('dialog');
  await limits.getByLabel('Requests per minute').fill('7');
  await limits.getByRole('button', { name: 'Save' }).click();
  await limits.waitFor({ state: 'detached' });
  await expect.poll(() => rowOf(lead.page, bob.id).innerText()).toContain('7');
  await actions.click();
  await lead.page.getByRole('menuitem', { name: 'Remove' }).click();
  await lead.page.getByRole('alertdialog').getByRole('button', { name: 'Remove' }).click();
  await expect.poll(() => rowOf(lead.page, bob.id).count()).toBe(0);
  await lead.page.getByRole('button', { name: 'Add a member' }).click();
  const adding = lead.page.getByRole('dialog');
  await adding.getByLabel('User id').fill('user_nobody');
  await adding.getByRole('button', { name: 'Add a member' }).click();
  await adding.getByRole('alert').getByText('There is no enabled user "user_nobody"').waitFor();
  await adding.getByLabel('User id').fill(bob.id);
  await adding.getByRole('button', { name: 'Add a member' }).click();
  await rowOf(lead.page, bob.id).waitFor();
  // The browser's console reports the refused form as an error.
  expect([...bob.complaints, ...lead.complaints].filter((line) => !line.includes('status of 422'))).toEqual([]);
});

it('operators keep the catalogue, see which always-on model no node serves, and others read it', async () => {
  const { page, complaints } = await visitors.enter();
  await go(page, 'Access');
  await page.getByText('All models are open to all users').waitFor();
  const add = async (model: string, fill: (dialog: ReturnType<Page['getByRole']>) => Promise<void>) => {
    await page.getByRole('button', { name: 'Add a model' }).click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Model', { exact: true }).fill(model);
    await dialog.getByLabel('Always on').check();
    await fill(dialog);
    await dialog.getByRole('button', { name: 'Save' }).click();
    await dialog.waitFor({ state: 'detached' });
  };
  await add(MODEL, async () => {});
  await add('org/old', async (dialog) => {
    await dialog.getByLabel('Ends on').fill('2100-06-30');
    await dialog.getByLabel('Successor').fill(MODEL);
  });
  await rowOf(page, 'org/old').getByText('no node serves it').waitFor();
  await page.getByText('served', { exact: true }).waitFor();
  expect(await rowOf(page, 'org/old').innerText()).toContain(`ends 2100-06-30, then ${MODEL}`);

  const { page: other } = await visitors.enter(visitors.house.key);
  await go(other, 'Access');
  await other.getByText('You logged in with a key').waitFor();
  await rowOf(other, 'org/old').waitFor();
  expect(await other.getByRole('button', { name: /Actions for|Add a model|Request access/ }).count()).toBe(0);

  await page.getByRole('button', { name: 'Actions for org/old' }).click();
  await page.getByRole('menuitem', { name: 'Remove entry' }).click();
  await page.getByRole('alertdialog').getByRole('button', { name: 'Remove entry' }).click();
  await expect.poll(() => rowOf(page, 'org/old').count()).toBe(0);
  expect(complaints).toEqual([]);
});
