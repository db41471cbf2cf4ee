/** The chat, in a real browser against a real gateway with a real agent; the engine is a stand-in. */
import { expect, it } from 'vitest';
import * as z from 'zod';
import { eventually } from '../support/processes.ts';
import { go, openDoor } from './visitors.ts';

const visitors = openDoor();

it('a chat streams, says who answered and how fast, stops, is edited and made again', async () => {
  visitors.house.engine.control({ tokens: 40, tokensPerSecond: 40 });
  const { page, complaints } = await visitors.enter(visitors.house.key);
  await go(page, 'Chat');
  await page.getByLabel('Message').fill('Tell me');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByRole('button', { name: 'Stop' }).waitFor();
  const told = page.locator('.told');
  await told.getByText('tokens/s').waitFor();
  expect(await told.innerText()).toMatch(/^lab, node [a-z2-7]{8}, first token .*, \d+\.\d tokens\/s$/);
  await page.getByRole('button', { name: 'Regenerate' }).click();
  const running = visitors.house.engine.when(() => visitors.house.engine.running() > 0, 10_000);
  await page.getByRole('button', { name: 'Stop' }).click();
  await running;
  await page.getByRole('button', { name: 'Send' }).waitFor();
  await eventually('the engine to stop', 5_000, async () => (visitors.house.engine.running() === 0 ? true : undefined));
  await page.getByRole('button', { name: 'Edit' }).click();
  expect(await page.getByLabel('Message').inputValue()).toBe('Tell me');
  expect(await page.locator('.turn').count()).toBe(0);
  await page.getByText('System prompt, temperature').click();
  await page.getByLabel('System prompt').fill('Be brief');
  await page.getByLabel('Temperature').fill('0.5');
  await page.getByLabel('Message').press('Enter');
  await told.getByText('tokens/s').waitFor();
  const body = z.object({
    temperature: z.number(),
    messages: z.array(z.object({ role: z.string(), content: z.string() })),
  });
  expect(body.parse(JSON.parse(visitors.house.engine.requests.at(-1)?.bodyStart ?? ''))).toEqual({
    temperature: 0.5,
    messages: [
      { role: 'system', content: 'Be brief' },
      { role: 'user', content: 'Tell me' },
    ],
  });
  visitors.house.engine.control({});
  expect(complaints).toEqual([]);
});

it('a new conversation while an answer streams ends it, and nothing of it comes back', async () => {
  visitors.house.engine.control({ tokens: 400, tokensPerSecond: 40 });
  const { page, complaints } = await visitors.enter(visitors.house.key);
  await go(page, 'Chat');
  await page.getByLabel('Message').fill('Tell me');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.locator('.turn .markdown').first().waitFor();
  await page.getByRole('button', { name: 'New conversation' }).click();
  await eventually('the engine to stop', 5_000, async () => (visitors.house.engine.running() === 0 ? true : undefined));
  await page.getByRole('button', { name: 'Send' }).waitFor();
  expect(await page.locator('.turn').count()).toBe(0);
  visitors.house.engine.control({});
  expect(complaints).toEqual([]);
});

it('what the user sends as markup is text, and an answer with markup does nothing', async () => {
  const { page, complaints } = await visitors.enter(visitors.house.key);
  const evil =
    '<img src=x onerror="document.title=`evil`"><script>document.title="evil"</script> [x](javascript:alert(1)) **bold**';
  await page.route('**/v1/chat/completions', (route) =>
    route.fulfill({
      headers: { 'content-type': 'text/event-stream' },
      body: `data: ${JSON.stringify({ choices: [{ delta: { content: evil } }] })}\n\ndata: [DONE]\n\n`,
    }),
  );
  await go(page, 'Chat');
  await page.getByLabel('Message').fill(evil);
  await page.getByRole('button', { name: 'Send' }).click();
  await page.locator('.markdown strong').getByText('bold').waitFor();
  expect(await page.locator('.turns img, .turns script, .turns a[href^="javascript"]').count()).toBe(0);
  expect(await page.title()).not.toBe('evil');
  expect(complaints).toEqual([]);
});

it('reasoning is folded, and only the providers that were named may see a question', async () => {
  const { page } = await visitors.enter(visitors.house.key);
  const asked: (string | null)[] = [];
  await page.route('**/v1/chat/completions', async (route) => {
    asked.push(await route.request().headerValue('x-otela-trusted-providers'));
    const deltas = [{ reasoning_content: 'Seven times six' }, { content: 'It is 42.' }];
    const events = deltas.map((delta) => `data: ${JSON.stringify({ choices: [{ delta }] })}\n\n`).join('');
    await route.fulfill({ headers: { 'content-type': 'text/event-stream' }, body: `${events}data: [DONE]\n\n` });
  });
  await go(page, 'Chat');
  await page.getByText('System prompt, temperature').click();
  await page.getByLabel('Trusted providers').fill('lab, eth');
  await page.getByLabel('Message').fill('What is it?');
  await page.getByRole('button', { name: 'Send' }).click();
  await page.getByText('It is 42.').waitFor();
  const thought = page.getByText('Seven times six');
  expect(await thought.isVisible()).toBe(false);
  await page.getByText('Reasoning', { exact: true }).click();
  await thought.waitFor({ state: 'visible' });
  expect(asked).toEqual(['lab, eth']);
});

it('two models answer side by side, with a picture', async () => {
  const { page } = await visitors.enter(visitors.house.key);
  await go(page, 'Chat');
  await page.getByRole('button', { name: 'Two models side by side' }).click();
  const panes = page.locator('.pane');
  await panes.nth(1).waitFor();
  const png = Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
    'base64',
  );
  await panes.nth(0).locator('input[type=file]').setInputFiles({ name: 'dot.png', mimeType: 'image/png', buffer: png });
  await panes.nth(0).locator('.thumb').waitFor();
  for (const n of [0, 1]) {
    await panes.nth(n).getByLabel('Message').fill(`To ${n}`);
    await panes.nth(n).getByRole('button', { name: 'Send' }).click();
    await panes.nth(n).locator('.told').getByText('tokens/s').waitFor();
  }
  const withPicture = visitors.house.engine.requests
    .map(({ bodyStart }) => bodyStart)
    .filter((text) => text.includes('image_url'));
  expect(withPicture).toHaveLength(1);
});
