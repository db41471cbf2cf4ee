/** `npm run screenshots`: every page of the dashboard, light and dark, into docs/screenshots. The engines are stand-ins. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { startAgent } from '../support/agent.ts';
import { logIn, openBrowser, openPage } from '../support/browser.ts';
import { startEngine } from '../support/engine.ts';
import { MODEL, openHouse } from '../support/house.ts';
import { atEnd, endAll } from '../support/processes.ts';
import { ROOT } from '../support/where.ts';

const OUT = join(ROOT, 'docs/screenshots');
const PAGES = ['models', 'chat', 'keys', 'usage', 'nodes', 'providers'];
/** A laptop's. */
const VIEWPORT = { width: 1200, height: 750 };

async function main(): Promise<void> {
  mkdirSync(OUT, { recursive: true });
  const house = await openHouse();
  const engine = await startEngine({ models: ['stand-in/model-2'] });
  atEnd(() => engine.close());
  const token = await house.gateway.createJoinToken('summer-school', 'clariden');
  await startAgent({ gateways: [house.gateway.url], token, engineUrl: engine.url });
  await house.gateway.serving(2);
  house.engine.control({ tokens: 60, tokensPerSecond: 200 });
  await house.ask('/v1/chat/completions', { model: MODEL, messages: [{ role: 'user', content: 'Hello' }] });
  const browser = await openBrowser();
  for (const colorScheme of ['light', 'dark'] as const) {
    const { page } = await openPage(browser, { colorScheme, viewport: VIEWPORT });
    await page.goto(house.gateway.url);
    await page.getByLabel('Or with an API key').waitFor();
    await page.screenshot({ path: join(OUT, `login-${colorScheme}.png`) });
    await logIn(page, house.gateway.url, house.gateway.adminKey);
    for (const name of PAGES) {
      await page.goto(`${house.gateway.url}/#/${name}`);
      await page.getByRole('heading', { level: 1 }).waitFor();
      if (name === 'chat') {
        await page.getByLabel('Message').fill('Where do these words come from?');
        await page.getByRole('button', { name: 'Send' }).click();
        await page.locator('.told').getByText('tokens/s').waitFor();
      } else await page.locator('.card, table, .empty').first().waitFor();
      await page.screenshot({ path: join(OUT, `${name}-${colorScheme}.png`) });
    }
  }
}

try {
  await main();
  console.log(`screenshots in ${OUT}`);
} finally {
  await endAll();
}
