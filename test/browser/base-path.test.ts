/** The page below a path of a portal, in a real browser. */
import { expect, it } from 'vitest';
import { logIn, openPage } from '../support/browser.ts';
import { startPathProxy } from '../support/path-proxy.ts';
import { answered, send } from './chat-page.ts';
import { go, openDoor } from './visitors.ts';

const PATH = '/rnode/gpu-1.cluster/8787';
const visitors = openDoor();

it('the page, the chat and the reference work below a path, and ask for nothing outside of it', async () => {
  const { gateway, engine } = visitors.house;
  const { url, strays } = await startPathProxy({ to: gateway.url, path: PATH, mode: 'named' });
  const { page, complaints } = await openPage(visitors.browser);
  await logIn(page, url, gateway.adminKey);
  const [cookie] = await page.context().cookies();
  expect(cookie).toMatchObject({ name: 'otela-session', path: `${PATH}/` });
  engine.control({ tokens: 5 });
  await go(page, 'Chat');
  await send(page, 'Hi');
  await answered(page);
  await page.locator('.told').getByText('5 output tokens').waitFor();
  await go(page, 'Nodes');
  await page.getByText('lab').first().waitFor();
  await go(page, 'Models');
  await page.getByRole('button', { name: 'Account' }).click();
  const reference = await page.getByRole('menuitem', { name: 'API' }).first().getAttribute('href');
  expect(reference).toBe(`${PATH}/docs`);
  await page.goto(`${url}docs`);
  await page.getByRole('heading', { level: 1, name: 'API reference' }).waitFor();
  await page.getByText('/v1/chat/completions').first().waitFor();
  expect([strays, complaints]).toEqual([[], []]);
});
