/** Stored conversations, presets and links of the chat, in a real browser against a real gateway with a real agent. */
import { beforeEach, expect, it } from 'vitest';
import { MODEL } from '../support/test-cluster.ts';
import { answered, send } from './chat-page.ts';
import { openDoor } from './visitors.ts';

const visitors = openDoor();

/** Short answers. */
beforeEach(() => visitors.house.engine.control({ tokens: 12, tokensPerSecond: 60 }));

it('a conversation is found again after a reload, is renamed, searched, exported and deleted', async () => {
  const { page, complaints } = await visitors.enter(visitors.house.key);
  await send(page, 'How do herons fish?');
  await answered(page);
  await page.getByRole('link', { name: 'How do herons fish?' }).waitFor();
  const answer = await page.locator('.turn.assistant .markdown').innerText();
  await page.reload();
  await page.locator('.said').getByText('How do herons fish?').waitFor();
  expect(await page.locator('.turn.assistant .markdown').innerText()).toBe(answer);
  await page.getByRole('button', { name: 'More: How do herons fish?' }).click();
  await page.getByRole('menuitem', { name: 'Rename' }).click();
  await page.getByLabel('New title').fill('Birds');
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('link', { name: 'Birds' }).waitFor();
  await page.getByRole('button', { name: 'New chat' }).click();
  await send(page, 'Something else');
  await answered(page);
  await page.keyboard.press('Control+k');
  await page.keyboard.type('HERONS');
  await expect
    .poll(() => page.getByRole('region', { name: 'Conversations' }).getByRole('link').allInnerTexts())
    .toEqual(['Birds']);
  await page.getByRole('link', { name: 'Birds' }).click();
  await page.locator('.said').getByText('How do herons fish?').waitFor();
  await page.getByRole('button', { name: 'More: Birds' }).click();
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('menuitem', { name: 'Export as Markdown' }).click(),
  ]);
  expect(download.suggestedFilename()).toBe('Birds.md');
  await page.getByRole('button', { name: 'More: Birds' }).click();
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  await page.getByRole('alertdialog').getByRole('button', { name: 'Delete' }).click();
  await page.getByText('No conversation contains these words.').waitFor();
  expect(complaints).toEqual([]);
});

it('one conversation in two tabs keeps the questions of both, and is gone in both once it is deleted', async () => {
  const { page, complaints } = await visitors.enter(visitors.house.key);
  await send(page, 'First');
  await answered(page);
  await page.getByRole('link', { name: 'First' }).waitFor();
  const other = await page.context().newPage();
  await other.goto(page.url());
  await other.locator('.said').getByText('First').waitFor();
  await send(other, 'Second');
  await answered(other);
  await page.locator('.said').getByText('Second').waitFor();
  await send(page, 'Third');
  await answered(page);
  await other.locator('.said').getByText('Third').waitFor();
  await other.reload();
  await other.locator('.said').getByText('Third').waitFor();
  expect(await other.locator('.said').allInnerTexts()).toEqual(['First', 'Second', 'Third']);
  await page.getByRole('button', { name: 'More: First' }).click();
  await page.getByRole('menuitem', { name: 'Delete' }).click();
  await page.getByRole('alertdialog').getByRole('button', { name: 'Delete' }).click();
  await other.getByText('deleted in another tab').waitFor();
  await send(other, 'Fourth');
  await answered(other);
  await page.reload();
  await page.getByLabel('Message').waitFor();
  expect(await page.getByRole('link', { name: 'First' }).count()).toBe(0);
  expect(complaints).toEqual([]);
});

it('a link brings model and settings along, which is told before anything is sent; a preset keeps them', async () => {
  const { page } = await visitors.enter(visitors.house.key);
  await page.goto(
    `${visitors.house.gateway.url}/#/chat?model=${encodeURIComponent(MODEL)}&system=Answer+in+French&temperature=0.2`,
  );
  await page.getByText('A link set the system prompt').waitFor();
  await page.getByRole('button', { name: 'Review them' }).click();
  expect(await page.getByLabel('System prompt').inputValue()).toBe('Answer in French');
  await page.getByLabel('Name of a new preset').fill('French');
  await page.getByRole('button', { name: 'Save as preset' }).click();
  await page.getByRole('button', { name: 'Use French' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'New chat' }).click();
  await page.getByRole('button', { name: 'Settings of this chat' }).click();
  await expect.poll(() => page.getByLabel('System prompt').inputValue()).toBe('');
  await page.getByRole('button', { name: 'Use French' }).click();
  expect(await page.getByLabel('System prompt').inputValue()).toBe('Answer in French');
});

it('a preset that the browser has no room for is reported, and does not look saved', async () => {
  const { page } = await visitors.enter(visitors.house.key);
  await page.goto(`${visitors.house.gateway.url}/#/chat`);
  await page.getByRole('button', { name: 'Settings of this chat' }).click();
  await page.evaluate(`IDBObjectStore.prototype.put = () => {
    throw new DOMException('no room is left', 'QuotaExceededError');
  }`);
  await page.getByLabel('Name of a new preset').fill('French');
  await page.getByRole('button', { name: 'Save as preset' }).click();
  await page.getByRole('dialog').getByText('no room is left').waitFor();
  expect(await page.getByLabel('Name of a new preset').inputValue()).toBe('French');
  expect(await page.getByRole('button', { name: 'Use French' }).count()).toBe(0);
});
