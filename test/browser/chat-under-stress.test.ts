/**
 * The chat under difficult conditions: a slow network, a gateway that restarts, full storage, a thousand conversations;
 * and with only the keyboard.
 */
import { expect, it } from 'vitest';
import { logIn, openBrowser, openPage } from '../support/browser.ts';
import { text as wordsOf } from '../support/engine/words.ts';
import { promise } from '../support/patience.ts';
import { eventually } from '../support/processes.ts';
import { MODEL, openTestCluster } from '../support/test-cluster.ts';
import { answered, send } from './chat-page.ts';
import { openDoor } from './visitors.ts';

const visitors = openDoor();

it('a conversation is held by keyboard alone: ask, stop, edit, copy nothing by mouse, begin anew', async () => {
  visitors.house.engine.control({ tokens: 400, tokensPerSecond: 40 });
  const { page, complaints } = await visitors.enter(visitors.house.key);
  await expect.poll(() => page.evaluate('document.activeElement?.getAttribute("aria-label")')).toBe('Message');
  await page.getByPlaceholder(`Message ${MODEL}`).waitFor();
  await page.keyboard.type('One');
  await page.keyboard.press('Shift+Enter');
  await page.keyboard.type('Two');
  await page.keyboard.press('Enter');
  await page.locator('.said').getByText('One\nTwo').waitFor();
  await page.locator('.turn .markdown').waitFor();
  await page.keyboard.press('Escape');
  await page.getByText('Stopped.').waitFor();
  visitors.house.engine.control({ tokens: 5, tokensPerSecond: 100 });
  await page.keyboard.press('ArrowUp');
  await expect.poll(() => page.getByLabel('Message').inputValue()).toBe('One\nTwo');
  await page.keyboard.press('Control+a');
  await page.keyboard.type('Three');
  await page.keyboard.press('Enter');
  await page.locator('.said').getByText('Three').waitFor();
  await page.locator('.told').waitFor();
  await page.keyboard.press('Control+Shift+O');
  await expect.poll(() => page.locator('.turn').count()).toBe(0);
  await page.keyboard.press('Control+k');
  await page.keyboard.type('three');
  await page.keyboard.press('Tab');
  await page.keyboard.press('Enter');
  await page.locator('.said').getByText('Three').waitFor();
  expect(complaints).toEqual([]);
});

it('a gateway that starts anew in mid-answer is told in words, what came stays, and the answer is tried again', async () => {
  const cluster = await openTestCluster({ engine: { behaviour: { tokens: 2_000, tokensPerSecond: 40 } } });
  const { page } = await openPage(await openBrowser());
  await logIn(page, cluster.gateway.url, cluster.key);
  await page.getByPlaceholder(`Message ${MODEL}`).waitFor();
  await page.getByLabel('Message').fill('Go on');
  await page.keyboard.press('Enter');
  await page.locator('.turn .markdown').waitFor();
  await cluster.gateway.kill9();
  await cluster.gateway.restart();
  await page
    .getByRole('alert')
    .getByText(/broke off|cannot be reached/)
    .waitFor();
  expect((await page.locator('.turn .markdown').innerText()).length).toBeGreaterThan(0);
  await page.getByText('connected', { exact: true }).waitFor();
  await cluster.gateway.serving(1, 30_000);
  cluster.engine.control({ tokens: 5, tokensPerSecond: 100 });
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.locator('.told').getByText('5 output tokens').waitFor();
});

it('a node that is killed in mid-answer is told, another one goes on, and the next turns stay there', async () => {
  const cluster = await openTestCluster({ nodes: 3 });
  for (const engine of cluster.engines) engine.control({ tokens: 60, pauseAfter: 8 });
  const { page } = await openPage(await openBrowser());
  await logIn(page, cluster.gateway.url, cluster.key);
  await page.getByPlaceholder(`Message ${MODEL}`).waitFor();
  await send(page, 'Go on');
  await page.locator('.turn .markdown').waitFor();
  const first = cluster.engines.findIndex((engine) => engine.running() > 0);
  for (const engine of cluster.engines) engine.control({ tokens: 60 });
  cluster.agents[first]?.signal('SIGKILL');
  await page.getByText('The node was lost. Another node continued this response.').waitFor();
  await answered(page);
  expect((await page.locator('.turn .markdown').innerText()).trim()).toBe(wordsOf(60).trim());
  const before = cluster.engines.map(({ requests }) => requests.length);
  for (let turn = 0; turn < 3; turn++) {
    await send(page, `Turn ${turn}`);
    await answered(page);
  }
  const asked = cluster.engines.filter(({ requests }, n) => requests.length > (before[n] ?? 0));
  expect(asked).toHaveLength(1);
});

it('on a slow network the page comes, and says that it sends before it waits', async () => {
  visitors.house.engine.control({ tokens: 5, tokensPerSecond: 100 });
  const { page, complaints } = await visitors.enter(visitors.house.key);
  const cdp = await page.context().newCDPSession(page);
  // Chrome's "Slow 3G".
  const slow = { offline: false, latency: 2_000, downloadThroughput: 50_000, uploadThroughput: 50_000 };
  await cdp.send('Network.enable');
  await cdp.send('Network.emulateNetworkConditions', slow);
  await page.reload();
  await page.getByPlaceholder(`Message ${MODEL}`).waitFor();
  await page.getByLabel('Message').fill('Hello');
  await page.keyboard.press('Enter');
  await page.locator('.turn').getByRole('status').getByText('Sending').waitFor();
  await page.locator('.told').waitFor();
  expect(complaints).toEqual([]);
});

it('among a thousand conversations one is found in well under a second, and only what is seen is drawn', async () => {
  const { page, complaints } = await visitors.enter(visitors.house.key);
  await page.getByRole('region', { name: 'Conversations' }).waitFor();
  // The page opens its database when it has drawn the list.
  const name = await eventually('the database', 10_000, () =>
    page.evaluate<string | undefined>(
      'indexedDB.databases().then((all) => all.find((one) => one.name.startsWith("otela-chat-"))?.name)',
    ),
  );
  await page.evaluate(`new Promise((resolve, reject) => {
    const opening = indexedDB.open(${JSON.stringify(name)});
    opening.onsuccess = () => {
      const tx = opening.result.transaction(['conversations', 'summaries', 'texts'], 'readwrite');
      for (let n = 0; n < 1000; n++) {
        const id = 'c' + n, title = 'Conversation ' + n, at = Date.now() - n * 3600e3;
        const turn = { id: 't', parent: null, role: 'user', text: 'word '.repeat(2000) + 'needle' + n + '.', state: 'done', at };
        const settings = { system: '', temperature: '', topP: '', maxTokens: '', trusted: '' };
        tx.objectStore('conversations').put({ id, title, createdAt: at, updatedAt: at, settings, threads: [{ model: 'm', turns: { t: turn }, chosen: {} }] });
        tx.objectStore('summaries').put({ id, title, updatedAt: at });
        tx.objectStore('texts').put(title.toLowerCase() + turn.text, id);
      }
      tx.oncomplete = resolve; tx.onerror = () => reject(tx.error);
    };
  })`);
  await page.reload();
  const list = page.getByRole('region', { name: 'Conversations' });
  await list.getByRole('link', { name: 'Conversation 0', exact: true }).waitFor();
  expect(await list.getByRole('link').count()).toBeLessThan(60);
  const from = performance.now();
  await page.getByLabel('Search conversations').fill('needle777.');
  await expect.poll(() => list.getByRole('link').allInnerTexts()).toEqual(['Conversation 777']);
  expect(performance.now() - from).toBeLessThan(promise(8_000));
  await list.getByRole('link').click();
  await page.locator('.said').getByText('needle777.').waitFor();
  expect(complaints).toEqual([]);
});

it('where the browser has no room the chat goes on, and says that it is not saved', async () => {
  visitors.house.engine.control({ tokens: 5, tokensPerSecond: 100 });
  const { page } = await visitors.enter(visitors.house.key);
  await page.evaluate(
    `IDBObjectStore.prototype.put = () => { throw new DOMException('The quota has been exceeded.', 'QuotaExceededError'); }`,
  );
  await page.getByPlaceholder(`Message ${MODEL}`).waitFor();
  await page.getByLabel('Message').fill('Hello');
  await page.keyboard.press('Enter');
  await page.locator('.told').waitFor();
  await page
    .getByRole('alert')
    .getByText('This conversation could not be saved in this browser: The quota has been exceeded.')
    .waitFor();
});
