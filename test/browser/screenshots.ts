/** `npm run screenshots`: every page of the dashboard, light, dark and on a phone, into docs/screenshots. The engines are stand-ins. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { startAgent } from '../support/agent.ts';
import { logIn, openBrowser, openPage } from '../support/browser.ts';
import { startEngine } from '../support/engine.ts';
import { type House, MODEL, openHouse } from '../support/house.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { ROOT } from '../support/where.ts';

const OUT = join(ROOT, 'docs/screenshots');
const SECOND = 'stand-in/model-2';
/** A laptop's, and a phone's. */
const LOOKS = [
  { name: 'light', colorScheme: 'light', viewport: { width: 1200, height: 750 } },
  { name: 'dark', colorScheme: 'dark', viewport: { width: 1200, height: 750 } },
  { name: 'phone', colorScheme: 'light', viewport: { width: 390, height: 844 } },
] as const;
type Look = (typeof LOOKS)[number];

const PAGES: Readonly<Record<string, (page: Page) => Promise<void>>> = {
  models: async (page) => {
    await page.getByText('2 running').waitFor();
    await page
      .locator('.now')
      .getByText(/^[1-9]\d*(\.\d)?$/)
      .first()
      .waitFor();
  },
  chat: async (page) => {
    await page.getByLabel('Message').fill('Where do these words come from?');
    await page.getByRole('button', { name: 'Send' }).click();
    await page.locator('.told').getByText('tokens/s').waitFor();
  },
  keys: (page) => page.getByRole('table').waitFor(),
  usage: (page) => page.locator('figure canvas').waitFor(),
  nodes: (page) => page.locator('figure canvas').waitFor(),
  providers: (page) => page.getByRole('table').waitFor(),
};

async function main(): Promise<void> {
  mkdirSync(OUT, { recursive: true });
  // GPUs are as real as the engines.
  process.env.PATH = `${join(ROOT, 'test/slurm')}:${process.env.PATH}`;
  const facts = ['--fact', 'quantization=bf16'];
  const house = await openHouse({ agentArgs: facts });
  const { gateway } = house;
  const engine = await startEngine({ models: [SECOND] });
  atEnd(() => engine.close());
  const token = await gateway.createJoinToken('summer-school', 'clariden');
  const start = () => startAgent({ gateways: [gateway.url], token, engineUrl: engine.url, args: facts });
  await start();
  const leaves = await start();
  await gateway.serving(2, 15_000, SECOND);
  leaves.signal('SIGTERM');
  await gateway.serving(1, 15_000, SECOND);
  await gateway.createKey('ada’s laptop', { limits: { requests_per_minute: 60 }, trusted_providers: ['lab'] });
  house.engine.control({ tokens: 60, tokensPerSecond: 200 });
  const counted = await house.ask('/v1/chat/completions', {
    model: MODEL,
    messages: [{ role: 'user', content: 'Hello' }],
  });
  await counted.text();
  const stop = await keepBusy(house);
  const browser = await openBrowser();
  for (const look of LOOKS) await takeAll(browser, house, look);
  await stop();
}

/** Two streams that go on, so that there is a load to be seen. */
async function keepBusy(house: House): Promise<() => Promise<void>> {
  const running = new AbortController();
  const streams = [1, 2].map(() =>
    house.ask(
      '/v1/chat/completions',
      {
        model: SECOND,
        stream: true,
        messages: [{ role: 'user', content: 'Go on' }],
        stand_in: { tokens: 1_000_000, tokensPerSecond: 45 },
      },
      { signal: running.signal },
    ),
  );
  const read = (await Promise.all(streams)).map((answer) => answer.text().catch(() => ''));
  return async () => {
    running.abort();
    await Promise.all(read);
  };
}

async function takeAll(browser: Browser, { gateway }: House, { name, colorScheme, viewport }: Look): Promise<void> {
  const { page } = await openPage(browser, { colorScheme, viewport });
  const take = async (what: string) => void (await page.screenshot({ path: join(OUT, `${what}-${name}.png`) }));
  await page.goto(gateway.url);
  await page.getByLabel('Or with an API key').waitFor();
  await take('login');
  await logIn(page, gateway.url, gateway.adminKey);
  for (const [what, ready] of Object.entries(PAGES)) {
    await page.goto(`${gateway.url}/#/${what}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await ready(page);
    await take(what);
  }
  await page.goto(`${gateway.url}/#/nodes`);
  await page.getByRole('heading', { name: 'Joins and losses' }).scrollIntoViewIfNeeded();
  await page.evaluate('scrollTo(0, document.documentElement.scrollHeight)');
  await take('history');
  await page.getByRole('button', { name: 'details of this node' }).first().click();
  await page.getByRole('dialog').getByText('ago').waitFor();
  await take('node');
}

try {
  await main();
  console.log(`screenshots in ${OUT}`);
} finally {
  await endAll();
}
