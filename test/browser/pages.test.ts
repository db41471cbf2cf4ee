/** Rules for every page, in a real browser against a real gateway with a real agent; the engine is a mock. */
import { expect, it } from 'vitest';
import { findings } from './axe.ts';
import { loaded, openDoor, PAGES } from './visitors.ts';

const visitors = openDoor();

/** The narrowest phones are 360 pixels wide. */
const PHONE = { viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true };
const LOOKS = [
  { look: 'light', options: { colorScheme: 'light' } },
  { look: 'dark', options: { colorScheme: 'dark' } },
  { look: 'phone', options: { colorScheme: 'light', ...PHONE } },
  { look: 'dark phone', options: { colorScheme: 'dark', ...PHONE } },
] as const;

it.each(['operator', 'provider', 'consumer'] as const)(
  'for a %s axe finds nothing on any page, light, dark and on a phone, where nothing is wider than the page',
  async (role) => {
    const { gateway } = visitors.house;
    const more = role === 'provider' ? { role, provider: 'lab' } : {};
    const key = role === 'operator' ? gateway.adminKey : await gateway.createKey(role, more);
    const seen = LOOKS.map(async ({ look, options }) => {
      // The page's own policy would block axe.
      const { page } = await visitors.enter(key, { bypassCSP: true, reducedMotion: 'reduce', ...options });
      const found: string[] = [];
      for (const name of PAGES[role]) {
        await page.goto(`${gateway.url}/#/${name}`);
        await page.getByRole('heading', { level: 1 }).waitFor();
        await loaded(page);
        found.push(...(await findings(page, `${name}, ${look}`)));
        if (Number(await page.evaluate('document.documentElement.scrollWidth - innerWidth')) > 0)
          found.push(`${name}, ${look}: wider than the page`);
      }
      await page.context().close();
      return found;
    });
    expect((await Promise.all(seen)).flat()).toEqual([]);
  },
  // Fourteen pages in four looks take a minute on an idle machine.
  300_000,
);

it('the banner of the operator is above the chat, and axe finds nothing in it', async () => {
  const { gateway, key } = visitors.house;
  const text = 'Maintenance on Monday from 8:00 to 9:00';
  const set = (status_page: object | null) => gateway.admin('PATCH', 'settings', { status_page });
  for (const level of ['info', 'warning']) {
    await set({ models: [], banner: { level, text } });
    const { page } = await visitors.enter(key, { bypassCSP: true, reducedMotion: 'reduce' });
    await page.getByRole('status').filter({ hasText: text }).waitFor();
    await page.getByLabel('Message').waitFor();
    expect(await findings(page, `a banner, ${level}`)).toEqual([]);
    await page.context().close();
  }
  await set(null);
});

it('axe finds nothing on the login page, in a conversation, in a menu and in a dialogue', async () => {
  const { page } = await visitors.enter(visitors.house.key, { bypassCSP: true, reducedMotion: 'reduce' });
  const text = '# A\n\nSee $x^2$:\n\n```python\ndef f(): pass\n```\n\n| a |\n|---|\n| 1 |\n\n- [x] done';
  const event = { choices: [{ delta: { content: text, reasoning: 'hm' } }] };
  await page.route('**/v1/chat/completions', (route) =>
    route.fulfill({
      headers: { 'content-type': 'text/event-stream' },
      body: `data: ${JSON.stringify(event)}\n\ndata: [DONE]\n\n`,
    }),
  );
  await page.getByLabel('Message').fill('Hello');
  await page.keyboard.press('Enter');
  await page.locator('.token-keyword').first().waitFor();
  await page.locator('.markdown math').waitFor();
  expect(await findings(page, 'a conversation')).toEqual([]);
  await page.getByRole('button', { name: 'Account' }).click();
  await page.getByRole('menuitem', { name: 'Log out' }).waitFor();
  expect(await findings(page, 'a menu')).toEqual([]);
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Settings of this chat' }).click();
  await page.getByLabel('System prompt').waitFor();
  expect(await findings(page, 'a dialogue')).toEqual([]);
  await page.context().clearCookies();
  await page.reload();
  await page.getByLabel('API key').waitFor();
  expect(await findings(page, 'login')).toEqual([]);
});
