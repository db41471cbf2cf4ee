/** What holds for every page, in a real browser against a real gateway with a real agent; the engine is a stand-in. */
import { describe, expect, it } from 'vitest';
import { findings } from './axe.ts';
import { loaded, openDoor, PAGES } from './visitors.ts';

const visitors = openDoor();

const PHONE = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };

describe.each([
  ['operator', 'light', {}],
  ['operator', 'dark', {}],
  ['provider', 'light', PHONE],
  ['consumer', 'dark', PHONE],
] as const)('%s, %s', (role, colorScheme, look) => {
  it('axe finds nothing on any page', async () => {
    const { gateway } = visitors.house;
    const key =
      role === 'operator'
        ? gateway.adminKey
        : await gateway.createKey(role, role === 'provider' ? { role, provider: 'lab' } : {});
    // The page's own policy would keep the tester out.
    const { page } = await visitors.enter(key, { colorScheme, bypassCSP: true, reducedMotion: 'reduce', ...look });
    for (const name of PAGES[role]) {
      await page.goto(`${gateway.url}/#/${name}`);
      await page.getByRole('heading', { level: 1 }).waitFor();
      await loaded(page);
      expect(await findings(page, name)).toEqual([]);
    }
  });
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

it('on a phone nothing is wider than the page', async () => {
  const { page } = await visitors.enter(visitors.house.gateway.adminKey, { viewport: { width: 360, height: 740 } });
  for (const name of PAGES.operator) {
    await page.goto(`${visitors.house.gateway.url}/#/${name}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await loaded(page);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(360);
  }
});
