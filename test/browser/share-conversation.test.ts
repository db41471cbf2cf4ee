/** A conversation that a person shows to another by a link, encrypted at the gateway. */
import { expect, it } from 'vitest';
import { z } from 'zod';
import { findings } from './axe.ts';
import { answered, send } from './chat-page.ts';
import { go, openDoor } from './visitors.ts';

const visitors = openDoor();

it('another person reads it by the link and continues a copy, until the owner deletes the link', async () => {
  const { gateway, engine } = visitors.house;
  await gateway.admin('PATCH', 'settings', { conversations_mib: 1 });
  engine.control({ tokens: 5 });
  const keys = await Promise.all(
    ['Ada', 'Ben'].map(async (name) => {
      const { id } = z.object({ id: z.string() }).parse(await gateway.admin('POST', 'users', { name }));
      return gateway.createKey(name, { user_id: id });
    }),
  );
  const [ada, ben] = [await visitors.enter(keys[0], { bypassCSP: true }), await visitors.enter(keys[1])];
  const sent: string[] = [];
  for (const { page } of [ada, ben])
    page.on('request', (request) => sent.push(request.url(), request.postDataBuffer()?.toString('latin1') ?? ''));

  await go(ada.page, 'Chat');
  await ada.page.getByRole('button', { name: 'Settings of this chat' }).click();
  await ada.page.getByLabel('System prompt').fill('a private prompt');
  await ada.page.keyboard.press('Escape');
  await ada.page.getByRole('dialog').waitFor({ state: 'detached' });
  await send(ada.page, 'A secret about zebras');
  await answered(ada.page);
  await ada.page.getByRole('button', { name: 'More: A secret about zebras' }).click();
  await ada.page.getByRole('menuitem', { name: 'Share by link …' }).click();
  const dialog = ada.page.getByRole('dialog');
  await dialog.getByLabel('The link works for').selectOption('7');
  await dialog.getByRole('button', { name: 'Make a link' }).click();
  const link = await dialog.getByLabel('Link', { exact: true }).inputValue();
  expect(link).toMatch(/#\/chat\/shared\/user_[\w-]+\/[\w-]{22}\/[\w-]{43}$/);
  await dialog.getByText(/^until /).waitFor();
  expect(await findings(ada.page, 'sharing')).toEqual([]);

  sent.length = 0;
  await ben.page.goto(link);
  await ben.page.reload();
  await ben.page.locator('main').getByText('A secret about zebras').first().waitFor();
  await ben.page.getByText('Shared with you').waitFor();
  await ben.page.getByRole('button', { name: 'Continue in a copy' }).click();
  await send(ben.page, 'And about lions');
  await answered(ben.page);
  expect(await ben.page.locator('.turn').count()).toBe(4);
  await ben.page.getByRole('button', { name: 'Settings of this chat' }).click();
  expect(await ben.page.getByLabel('System prompt').inputValue()).toBe('');
  await ben.page.keyboard.press('Escape');
  // A second copy leaves the first one as it is.
  const first = ben.page.url();
  await ben.page.goto(link);
  await ben.page.getByRole('button', { name: 'Continue in a copy' }).click();
  await ben.page.waitForURL((url) => !url.href.includes('/shared/'));
  expect(ben.page.url()).not.toBe(first);
  expect(await ben.page.locator('.turn').count()).toBe(2);
  await ben.page.goto(first);
  await ben.page.getByText('And about lions').first().waitFor();
  const secret = link.slice(-43);
  expect(sent.filter((text) => text.includes(secret))).toEqual([]);

  // A link that lost its end on the way.
  await ben.page.goto(link.slice(0, -3));
  await ben.page.getByText('This link is incomplete or wrong.').waitFor();
  await dialog.getByRole('button', { name: 'Delete' }).click();
  await dialog.getByText(/^until /).waitFor({ state: 'detached' });
  await ben.page.goto(link);
  await ben.page.reload();
  await ben.page.getByText('This link has ended, or was deleted.').waitFor();
});
