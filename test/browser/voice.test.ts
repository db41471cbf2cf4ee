/** Dictating a message and reading an answer aloud, in a real browser with a microphone that beeps. */
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { FAKE_MICROPHONE, logIn, openBrowser, openPage } from '../support/browser.ts';
import { endAll } from '../support/processes.ts';
import { MODEL, openTestCluster, type TestCluster } from '../support/test-cluster.ts';
import { answered, send } from './chat-page.ts';

const [HEARS, SPEAKS] = ['stand-in/hears', 'stand-in/speaks'];
let cluster: TestCluster;
let page: Page;
let complaints: string[];

beforeAll(async () => {
  const facts = [`${HEARS}:input=audio`, `${HEARS}:output=text`, `${SPEAKS}:input=text`, `${SPEAKS}:output=audio`];
  cluster = await openTestCluster({
    engine: { models: [MODEL, HEARS, SPEAKS] },
    agentArgs: facts.flatMap((fact) => ['--fact', fact]),
  });
  ({ page, complaints } = await openPage(await openBrowser(FAKE_MICROPHONE)));
  await logIn(page, cluster.gateway.url, cluster.key);
  await page.goto(`${cluster.gateway.url}/#/chat`);
});
afterAll(endAll);

const button = (name: string) => page.getByRole('button', { name, exact: true });
const lastUpload = () => cluster.engine.requests.findLast(({ url }) => url === '/v1/audio/transcriptions');

/** A tenth of a second of silence. */
function silence(): Buffer {
  const samples = Buffer.alloc(1_600);
  const head = Buffer.alloc(44);
  head.write('RIFF', 0);
  head.writeUInt32LE(36 + samples.length, 4);
  head.write('WAVE', 8);
  head.write('fmt ', 12);
  head.writeUInt32LE(16, 16);
  head.writeUInt16LE(1, 20);
  head.writeUInt16LE(1, 22);
  head.writeUInt32LE(8_000, 24);
  head.writeUInt32LE(16_000, 28);
  head.writeUInt16LE(2, 32);
  head.writeUInt16LE(16, 34);
  head.write('data', 36);
  head.writeUInt32LE(samples.length, 40);
  return Buffer.concat([head, samples]);
}

it('writes spoken words into the message, behind what was typed', async () => {
  await page.getByLabel('Message').fill('Please note:');
  await button('Dictate').click();
  await button('Stop recording').click();
  await expect
    .poll(() => page.getByLabel('Message').inputValue())
    .toBe('Please note: The stand-in engine hears nothing.');
  const { bodyStart = '', bodyBytes = 0 } = lastUpload() ?? {};
  expect(bodyStart).toContain(HEARS);
  expect(bodyStart).toContain('filename="voice.webm"');
  // The EBML header of WebM, with which each recording begins.
  expect(bodyStart).toContain('webm');
  expect(bodyBytes).toBeGreaterThan(200);
});

it('reads an answer aloud, and says so if the speech cannot be played', async () => {
  cluster.engine.control({ tokens: 12 }, 1);
  await send(page, 'Tell me');
  await answered(page);
  // The mock engine's speech is not a sound file.
  await button('Read aloud').click();
  await page.getByText('The browser cannot play this speech.').waitFor();

  const asked: { status: number; input: string; model: string }[] = [];
  await page.route('**/v1/audio/speech', async (route) => {
    const { input, model } = JSON.parse(route.request().postData() ?? '');
    const real = await route.fetch();
    asked.push({ status: real.status(), input, model });
    await route.fulfill({ body: silence(), contentType: 'audio/wav' });
  });
  await button('Read aloud').click();
  await expect.poll(() => asked.length).toBe(1);
  await button('Read aloud').waitFor();
  const [first] = asked;
  expect(first).toMatchObject({ status: 200, model: SPEAKS });
  expect(first?.input).toMatch(/^This is a stand-in engine/);
  expect(await page.getByText('The browser cannot play this speech.').count()).toBe(0);
});

it('sends sound to trusted providers only, and none of a sealed chat', async () => {
  await button('Settings of this chat').click();
  await page.getByLabel('Trusted providers').fill('lab');
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const sent = page.waitForRequest('**/v1/audio/transcriptions');
  await button('Dictate').click();
  await button('Stop recording').click();
  expect((await sent).headers()['x-otela-trusted-providers']).toBe('lab');
  await button('Dictate').waitFor();

  await button('Settings of this chat').click();
  await page.getByLabel('Seal this chat').check();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await expect.poll(() => button('Dictate').count()).toBe(0);
  expect(await button('Read aloud').count()).toBe(0);
});

it('shows an error of the model, and gives the microphone back', async () => {
  await page.goto(`${cluster.gateway.url}/#/chat`);
  await page.reload();
  cluster.engine.control({ status: 400 }, 1);
  await button('Dictate').click();
  await button('Stop recording').click();
  await page.getByText('status 400 was asked for').waitFor();
  await button('Dictate').waitFor();
  expect(complaints.filter((text) => !text.includes('status of 400'))).toEqual([]);
});
