/** The page of batches, in a real browser against a real gateway with a real agent; the engine is a mock. */
import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { MODEL } from '../support/test-cluster.ts';
import { findings } from './axe.ts';
import { go, openDoor } from './visitors.ts';

const visitors = openDoor();

const LINES = 500;

function requests(lines: number, more: (n: number) => object = () => ({})): Buffer {
  const body = { model: MODEL, messages: [{ role: 'user', content: 'Is it true?' }] };
  const line = (n: number) => ({
    custom_id: `claim-${n}`,
    method: 'POST',
    url: '/v1/chat/completions',
    body,
    ...more(n),
  });
  return Buffer.from(Array.from({ length: lines }, (_, n) => `${JSON.stringify(line(n))}\n`).join(''));
}

const file = (name: string, buffer: Buffer) => ({ name, mimeType: 'application/jsonl', buffer });

async function choose(page: Page, name: string, buffer: Buffer): Promise<void> {
  const chooser = page.waitForEvent('filechooser');
  await page.getByRole('button', { name: 'Choose a file' }).click();
  await (await chooser).setFiles(file(name, buffer));
}

async function start(page: Page): Promise<void> {
  await page.getByRole('dialog', { name: 'New batch' }).getByRole('button', { name: 'Start' }).click();
  await page.getByRole('link', { name: 'Back to all batches' }).waitFor();
}

/** Drops a file as a file manager does. */
async function drop(page: Page, name: string, text: string): Promise<void> {
  const data = await page.evaluateHandle(`(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([${JSON.stringify(text)}], ${JSON.stringify(name)}));
    return transfer;
  })()`);
  const zone = page.getByText('Drop a file of requests here');
  await zone.dispatchEvent('dragover', { dataTransfer: data });
  await zone.dispatchEvent('drop', { dataTransfer: data });
}

async function download(page: Page, name: string): Promise<string[]> {
  const coming = page.waitForEvent('download');
  await page.getByRole('link', { name, exact: true }).click();
  const stream = await (await coming).createReadStream();
  let text = '';
  for await (const piece of stream) text += piece;
  return text.trim().split('\n');
}

it('500 lines are dropped, sent in parts, watched and answered once each, and the answers are downloaded', async () => {
  const { page, complaints } = await visitors.enter(visitors.house.key, { bypassCSP: true, reducedMotion: 'reduce' });
  visitors.house.engine.control({ tokens: 2 });
  await go(page, 'Batches');
  await page.getByText('There is no batch yet.').waitFor();
  await drop(page, 'claims.jsonl', requests(LINES).toString());
  const dialog = page.getByRole('dialog', { name: 'New batch' });
  expect(await dialog.getByLabel('Name').inputValue()).toBe('claims');
  expect(await findings(page, 'a new batch')).toEqual([]);
  await start(page);
  await page.getByRole('heading', { level: 1, name: 'claims' }).waitFor();
  await page.getByText('500 of 500').waitFor();
  await page.getByText('done', { exact: true }).waitFor();
  const answers = await download(page, 'Answers');
  const ids = answers.map((line) => /"custom_id":"([^"]+)"/.exec(line)?.[1]);
  expect(new Set(ids).size).toBe(LINES);
  expect(answers).toHaveLength(LINES);
  expect(await findings(page, 'a batch that is done')).toEqual([]);
  await page.getByRole('link', { name: 'Back to all batches' }).click();
  await page.getByRole('row', { name: /claims .*500 of 500/ }).waitFor();
  expect(complaints).toEqual([]);
});

it('a batch is paused, goes on, and is cancelled; what was answered is kept', async () => {
  const { page } = await visitors.enter(visitors.house.key);
  visitors.house.engine.control({ tokens: 20, tokensPerSecond: 20 });
  await go(page, 'Batches');
  // More lines than nodes can have taken by then.
  await choose(page, 'slow.jsonl', requests(4 * LINES));
  await start(page);
  await page.getByText('running', { exact: true }).waitFor();
  await page.getByText(/^1 node with \d+ lines$/).waitFor();
  await page.getByText(/lines\/s, .* tokens\/s$/).waitFor();
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByText('paused', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByText('running', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Cancel batch' }).click();
  await page.getByRole('alertdialog').getByRole('button', { name: 'Cancel batch' }).click();
  await page.getByText('cancelled', { exact: true }).waitFor();
  const errors = await download(page, 'Errors');
  const answers = await download(page, 'Answers');
  expect(errors.length + answers.length).toBe(4 * LINES);
  visitors.house.engine.control({});
});

it('a bad file is refused with each bad line, and is deleted', async () => {
  const { page } = await visitors.enter(visitors.house.key, { bypassCSP: true, reducedMotion: 'reduce' });
  await go(page, 'Batches');
  await choose(
    page,
    'broken.jsonl',
    requests(5, (n) => (n === 1 ? { url: '/v1/embeddings' } : n === 3 ? { custom_id: 'claim-0' } : {})),
  );
  await start(page);
  await page.getByText('bad file', { exact: true }).waitFor();
  await page.getByRole('heading', { name: 'The file was rejected: 2 errors' }).waitFor();
  await page.getByRole('row', { name: /^2 .*does not match.*invalid_url/ }).waitFor();
  await page.getByRole('row', { name: /^4 .*duplicate_custom_id/ }).waitFor();
  expect(await findings(page, 'a refused file')).toEqual([]);
  await page.getByRole('link', { name: 'Back to all batches' }).click();
  await page.getByRole('button', { name: 'Actions for broken.jsonl' }).click();
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  await page.getByRole('alertdialog').getByRole('button', { name: 'Delete' }).click();
  await expect.poll(() => page.getByRole('button', { name: 'Actions for broken.jsonl' }).count()).toBe(0);
});

it('a part that is lost on the way is sent again, and a file that cannot be sent leaves nothing', async () => {
  const { page } = await visitors.enter(visitors.house.key);
  await go(page, 'Batches');
  let [lost, sent] = [0, 0];
  await page.route('**/v1/uploads/*/parts', (route) => {
    if (lost++ === 0) return route.abort();
    sent++;
    return route.continue();
  });
  // Two parts: one part has 4 MiB.
  const padding = requests(6_000, () => ({ note: 'x'.repeat(700) }));
  await choose(page, 'large.jsonl', padding);
  await start(page);
  expect([lost > 1, sent]).toEqual([true, 2]);
  await page.getByRole('button', { name: 'Cancel batch' }).click();
  await page.getByRole('alertdialog').getByRole('button', { name: 'Cancel batch' }).click();
  await page
    .getByText('being cancelled')
    .or(page.getByText('cancelled', { exact: true }))
    .first()
    .waitFor();
  await page.unroute('**/v1/uploads/*/parts');
  await page.getByRole('link', { name: 'Back to all batches' }).click();
  const cancelled = page.waitForRequest('**/v1/uploads/*/cancel');
  await page.route('**/v1/uploads/*/parts', (route) =>
    route.fulfill({
      status: 413,
      json: { error: { message: 'The file store is too small.', code: 'request_too_large' } },
    }),
  );
  await choose(page, 'never.jsonl', requests(3));
  const dialog = page.getByRole('dialog', { name: 'New batch' });
  await dialog.getByRole('button', { name: 'Start' }).click();
  await dialog.getByText('The file store is too small.').waitFor();
  await cancelled;
  await page.keyboard.press('Escape');
  expect(await page.getByRole('link', { name: 'never.jsonl' }).count()).toBe(0);
});

it('an operator sees the batches of all, and may cancel one, but reads no file of it; others see neither', async () => {
  const { gateway } = visitors.house;
  const owner = await visitors.enter(visitors.house.key);
  visitors.house.engine.control({ tokens: 10, tokensPerSecond: 10 });
  await go(owner.page, 'Batches');
  await choose(owner.page, 'secret.jsonl', requests(4 * LINES));
  await start(owner.page);
  const id = new URL(owner.page.url()).hash.split('/').at(-1);
  const { page } = await visitors.enter(gateway.adminKey);
  await go(page, 'Batches');
  await page.getByRole('link', { name: 'secret' }).click();
  await page.getByText('Only the owner of the batch may read its files').waitFor();
  expect(await page.getByRole('link', { name: 'Requests' }).count()).toBe(0);
  await page.getByRole('button', { name: 'Cancel batch' }).click();
  await page.getByRole('alertdialog').getByRole('button', { name: 'Cancel batch' }).click();
  await owner.page.getByText(/^(being )?cancelled$/).waitFor();
  const stranger = await visitors.enter(await gateway.createKey());
  await stranger.page.goto(`${gateway.url}/#/batches/${id}`);
  await stranger.page.getByRole('alert').getByText('No batch found').waitFor();
  visitors.house.engine.control({});
});

it('on a phone, by keyboard alone, a file is chosen and its batch begun', async () => {
  const phone = {
    viewport: { width: 390, height: 844 },
    isMobile: true,
    hasTouch: true,
    reducedMotion: 'reduce',
  } as const;
  const { page } = await visitors.enter(visitors.house.key, phone);
  // Until Chromium knows that a test waits for it, it opens its own file chooser, which the test does not see; this
  // takes a moment.
  const chooser = page.waitForEvent('filechooser');
  await page.goto(`${visitors.house.gateway.url}/#/batches`);
  const button = page.getByRole('button', { name: 'Choose a file' });
  await button.focus();
  await page.keyboard.press('Enter');
  await (await chooser).setFiles(file('typed.jsonl', requests(3)));
  await page.getByRole('dialog', { name: 'New batch' }).waitFor();
  const begin = page.getByRole('button', { name: 'Start' });
  for (let n = 0; n < 10 && !(await begin.and(page.locator(':focus')).count()); n++) await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.getByText('3 of 3').waitFor();
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(390);
});
