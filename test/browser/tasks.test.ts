/**
 * Users' main tasks, performed as users would: only through the visible page, by its texts. The engines are mocks, and
 * the one answer with a formula is written by hand; gateway, agent and browser are real.
 */
import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';
import { startAgent } from '../support/agent.ts';
import { openPage } from '../support/browser.ts';
import { startEngine } from '../support/engine.ts';
import { atEnd } from '../support/processes.ts';
import { MODEL } from '../support/test-cluster.ts';
import { pdf } from './pdf.ts';
import { openDoor } from './visitors.ts';

const visitors = openDoor();
const BUSY = 'stand-in/large';

const open = (page: Page, name: string) =>
  page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name, exact: true }).click();

async function signIn(page: Page, key: string): Promise<void> {
  await page.goto(visitors.house.gateway.url);
  await page.getByLabel('API key').fill(key);
  await page.getByRole('button', { name: 'Log in', exact: true }).click();
  await page.getByRole('navigation', { name: 'Pages' }).waitFor();
}

/** A model with an engine that runs one request at a time, and has three. */
async function openBusyModel(): Promise<() => void> {
  const { gateway, token, ask } = visitors.house;
  const engine = await startEngine({ models: [BUSY], slots: 1 });
  atEnd(() => engine.close());
  await startAgent({ gateways: [gateway.url], token, engineUrl: engine.url });
  await gateway.serving(1, 15_000, BUSY);
  const leave = new AbortController();
  for (let n = 0; n < 3; n++)
    void ask(
      '/v1/chat/completions',
      {
        model: BUSY,
        stream: true,
        messages: [{ role: 'user', content: 'Go on' }],
        stand_in: { tokens: 1_000_000, tokensPerSecond: 40 },
      },
      { signal: leave.signal },
    )
      .then((answer) => answer.text())
      .catch(() => undefined);
  return () => leave.abort();
}

it('a new user signs in, finds a model and why one is busy, asks about a PDF, stops, edits, and finds it all after a restart', async () => {
  const { house: cluster } = visitors;
  const end = await openBusyModel();
  const { page } = await openPage(visitors.browser);
  await signIn(page, cluster.key);

  await open(page, 'Models');
  await page.getByLabel('Find a model').fill('large');
  const tile = page.getByRole('listitem').filter({ has: page.getByRole('heading', { name: BUSY }) });
  await tile.getByText(/^busy, [12] waiting$/).waitFor();
  await tile.getByText(/^1 running, [12] waiting$/).waitFor();
  end();
  await page.getByLabel('Find a model').fill('model-1');
  await page.getByRole('link', { name: 'Try' }).click();

  await page.route('**/v1/chat/completions', async (route) => {
    expect(route.request().postData()).toContain('The area under a bell');
    const event = { choices: [{ delta: { content: 'It is $\\sqrt{\\pi}$ in all.' } }] };
    const headers = { 'content-type': 'text/event-stream' };
    await route.fulfill({ headers, body: `data: ${JSON.stringify(event)}\n\ndata: [DONE]\n\n` });
  });
  const chooser = page.waitForEvent('filechooser');
  await page.getByRole('button', { name: 'Attach files' }).click();
  await (await chooser).setFiles({
    name: 'bell.pdf',
    mimeType: 'application/pdf',
    buffer: pdf('The area under a bell'),
  });
  await page.getByText('1 page').waitFor();
  await page.getByLabel('Message').fill('Which area does the paper give?');
  await page.getByLabel('Message').press('Enter');
  await page.getByRole('math').waitFor();
  await page.unroute('**/v1/chat/completions');

  cluster.engine.control({ tokens: 5_000, tokensPerSecond: 30 });
  await page.getByLabel('Message').fill('Tell me more');
  await page.getByLabel('Message').press('Enter');
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.getByText('Stopped.').waitFor();
  cluster.engine.control({ tokens: 5 });
  await page.getByRole('button', { name: 'Edit' }).last().click();
  await page.getByLabel('Message').fill('Tell me more, in one line');
  await page.getByLabel('Message').press('Enter');
  await page.getByText('2 of 2').waitFor();
  await page.getByRole('button', { name: 'Send' }).waitFor();

  await page.close();
  await cluster.gateway.kill9();
  await cluster.gateway.restart();
  const later = await page.context().newPage();
  await later.goto(`${cluster.gateway.url}/#/chat`);
  // Of two served models, the last requested one.
  await later.getByRole('combobox', { name: 'Model' }).getByText(MODEL).waitFor();
  await later.getByRole('link', { name: 'Which area does the paper give?' }).click();
  await later.getByRole('math').waitFor();
  await later.getByText('Tell me more, in one line').waitFor();
});

it('the keyboard alone makes a key: to the page, through its form, and out of its dialogue', async () => {
  const { gateway } = visitors.house;
  const { page } = await openPage(visitors.browser, { reducedMotion: 'reduce' });
  await signIn(page, gateway.adminKey);
  const focusOn = async (name: string | RegExp) => {
    const wanted = page
      .getByRole('link', { name })
      .or(page.getByRole('button', { name }))
      .or(page.getByRole('menuitem', { name }));
    for (let n = 0; n < 60; n++) {
      if (await wanted.and(page.locator(':focus')).count()) return;
      await page.keyboard.press('Tab');
    }
    throw new Error(`Tab does not reach ${name}`);
  };
  await focusOn('Keys');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Keys' }).waitFor();
  await focusOn('New key');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog', { name: 'New key' }).waitFor();
  await page.getByLabel('Name').and(page.locator(':focus')).waitFor();
  await page.keyboard.type('typed');
  await page.keyboard.press('Enter');
  await page.getByRole('region', { name: 'Your new key.' }).waitFor();
  await focusOn('Actions for typed');
  await page.keyboard.press('Enter');
  await page.getByRole('menuitem', { name: 'Edit' }).waitFor();
  for (const name of ['Rotate', 'Revoke']) {
    await page.keyboard.press('ArrowDown');
    await page.getByRole('menuitem', { name }).and(page.locator('[data-highlighted]')).waitFor();
  }
  await page.keyboard.press('Enter');
  await page.getByRole('alertdialog').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('alertdialog').waitFor({ state: 'detached' });
  await page.getByRole('row', { name: 'typed' }).getByText('active').waitFor();
});
