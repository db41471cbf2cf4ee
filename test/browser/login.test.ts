/**
 * Logging in and out, and a session's rights, in a real browser against a real gateway with a real agent; the engine is
 * a mock.
 */
import { expect, it } from 'vitest';
import { logIn, openPage } from '../support/browser.ts';
import { openDoor } from './visitors.ts';

const visitors = openDoor();

it('a wrong key is told so; a right one opens the page, and no script can read it', async () => {
  const { page, complaints } = await openPage(visitors.browser);
  await page.goto(visitors.house.gateway.url);
  await page.getByLabel('API key').fill('sk-otela-wrong');
  await page.getByRole('button', { name: 'Log in', exact: true }).click();
  await page.getByRole('alert').getByText('does not know this API key').waitFor();
  await logIn(page, visitors.house.gateway.url, visitors.house.key);
  await page.getByRole('navigation', { name: 'Pages' }).waitFor();
  const held = await page.evaluate('JSON.stringify({ ...localStorage, ...sessionStorage, cookie: document.cookie })');
  expect(held).not.toContain('otela');
  const cookies = await page.context().cookies();
  expect(cookies).toHaveLength(1);
  expect(cookies[0]).toMatchObject({ name: 'otela-session', httpOnly: true, sameSite: 'Lax' });
  expect(cookies[0]?.value).not.toContain(visitors.house.key);
  expect(complaints).toEqual([]);
});

it('a consumer sees no nodes and no providers; logging out ends it', async () => {
  const { page } = await visitors.enter(visitors.house.key);
  expect(await page.getByRole('navigation').getByRole('link').allTextContents()).toEqual([
    'Chat',
    'Models',
    'Batches',
    'Usage',
    'Keys',
    'Access',
  ]);
  await page.getByRole('button', { name: 'Account' }).click();
  await page.getByRole('menuitem', { name: 'Log out' }).click();
  await page.getByLabel('API key').waitFor();
  await page.reload();
  await page.getByLabel('API key').waitFor();
});

it('another site cannot act with the session', async () => {
  const { page } = await visitors.enter();
  const [cookie] = await page.context().cookies();
  const headers = {
    cookie: `${cookie?.name}=${cookie?.value}`,
    'content-type': 'application/json',
    'sec-fetch-site': 'cross-site',
  };
  const body = JSON.stringify({ name: 'stolen' });
  const stolen = await fetch(`${visitors.house.gateway.url}/admin/keys`, { method: 'POST', headers, body });
  expect(stolen.status).toBe(403);
  const forged = { ...headers, cookie: `${cookie?.name}=key.AAAA.BBBB`, 'sec-fetch-site': 'same-origin' };
  expect((await fetch(`${visitors.house.gateway.url}/admin/me`, { headers: forged })).status).toBe(401);
});
