/** Conversations that follow a person to another browser, encrypted at the gateway. */
import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { z } from 'zod';
import { eventually } from '../support/processes.ts';
import { findings } from './axe.ts';
import { answered, send } from './chat-page.ts';
import { go, openDoor } from './visitors.ts';

const PASSPHRASE = 'correct horse battery';
const visitors = openDoor();

const list = (page: Page) => page.getByRole('region', { name: 'Conversations' });
async function enterWith(page: Page, button: string, passphrase: string, again?: string) {
  await page.getByRole('button', { name: button }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByLabel('Passphrase', { exact: true }).fill(passphrase);
  if (again !== undefined) await dialog.getByLabel('Repeat the passphrase').fill(again);
  return dialog;
}

it('a second browser gets the conversations with the passphrase, and the gateway has only encrypted bytes', async () => {
  const { gateway, engine } = visitors.house;
  await gateway.admin('PATCH', 'settings', { conversations_mib: 1 });
  const { id } = z.object({ id: z.string() }).parse(await gateway.admin('POST', 'users', { name: 'Ada' }));
  const key = await gateway.createKey('ada', { user_id: id });
  engine.control({ tokens: 5 });
  const [one, two] = [await visitors.enter(key, { bypassCSP: true }), await visitors.enter(key)];

  await go(one.page, 'Chat');
  await send(one.page, 'A secret about zebras');
  await answered(one.page);
  const dialog = await enterWith(one.page, 'Keep at the gateway …', PASSPHRASE, 'something else');
  expect(await findings(one.page, 'the passphrase')).toEqual([]);
  await dialog.getByRole('button', { name: 'Keep them' }).click();
  await dialog.getByText('The two passphrases differ.').waitFor();
  await dialog.getByLabel('Repeat the passphrase').fill(PASSPHRASE);
  await dialog.getByRole('button', { name: 'Keep them' }).click();
  await one.page.getByText('Kept at the gateway, encrypted').waitFor();

  const kept = await eventually('the conversation at the gateway', 20_000, async () => {
    const headers = { authorization: `Bearer ${key}` };
    const answer = await fetch(`${gateway.url}/v1/otela/conversations`, { headers });
    const { data } = (await answer.json()) as { data: { id: string }[] };
    const [first] = data;
    if (first === undefined) return undefined;
    return Buffer.from(
      await (await fetch(`${gateway.url}/v1/otela/conversations/${first.id}`, { headers })).arrayBuffer(),
    );
  });
  expect(kept.toString('latin1')).not.toContain('zebras');

  await go(two.page, 'Chat');
  const other = await enterWith(two.page, 'Get my conversations …', 'not the passphrase');
  await other.getByRole('button', { name: 'Get them' }).click();
  await other.getByText('This is not the passphrase of your conversations.').waitFor();
  await other.getByLabel('Passphrase', { exact: true }).fill(PASSPHRASE);
  await other.getByRole('button', { name: 'Get them' }).click();
  await list(two.page).getByRole('link', { name: 'A secret about zebras' }).click();
  await two.page.locator('main').getByText('A secret about zebras').first().waitFor();

  await send(two.page, 'And about lions');
  await answered(two.page);
  await two.page.getByText('Kept at the gateway, encrypted').waitFor();
  await eventually('the second question in the first browser', 30_000, async () => {
    await one.page.reload();
    await one.page.getByText('Kept at the gateway, encrypted').waitFor();
    return (await one.page.locator('main').getByText('And about lions').count()) > 0 || undefined;
  });

  await two.page.getByRole('button', { name: 'Stop …' }).click();
  await two.page.getByRole('button', { name: 'Delete at the gateway' }).click();
  await two.page.getByRole('button', { name: 'Keep at the gateway …' }).waitFor();
  await list(two.page).getByRole('link', { name: 'A secret about zebras' }).waitFor();
  expect([one.complaints.filter((one) => !one.includes('409')), two.complaints]).toEqual([[], []]);
});

it('a gateway without space for conversations offers nothing', async () => {
  const { page, complaints } = await visitors.enter();
  await go(page, 'Chat');
  await page.getByLabel('Message').waitFor();
  expect(await page.getByRole('button', { name: /gateway …/ }).count()).toBe(0);
  expect(complaints).toEqual([]);
});
