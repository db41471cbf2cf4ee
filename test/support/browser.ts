/** Debian's Chromium, and pages in it that report errors. */
import { type Browser, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { CHROMIUM } from './abilities.ts';
import { patience } from './patience.ts';
import { atEnd } from './processes.ts';

/** Playwright's own 30 s are not enough on a machine that is three times slower and busy. */
const WAIT_MS = 30_000;

/** Chromium with a microphone that beeps, and that pages may use without a question. */
export const FAKE_MICROPHONE = ['--use-fake-device-for-media-stream', '--use-fake-ui-for-media-stream'];

export async function openBrowser(more: readonly string[] = []): Promise<Browser> {
  if (CHROMIUM === undefined) throw new Error('no chromium here');
  // Chromium's sandbox refuses to start as root, which CI is. Containers have a /dev/shm of 64 MiB.
  const args = ['--disable-dev-shm-usage', ...(process.getuid?.() === 0 ? ['--no-sandbox'] : []), ...more];
  const browser = await chromium.launch({ executablePath: CHROMIUM, args });
  atEnd(() => browser.close());
  return browser;
}

export interface Visit {
  page: Page;
  /** Exceptions of scripts, console errors, and violations of the content-security policy. */
  complaints: string[];
}

export async function openPage(browser: Browser, options: BrowserContextOptions = {}): Promise<Visit> {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(patience(WAIT_MS));
  const page = await context.newPage();
  const complaints: string[] = [];
  page.on('pageerror', (error) => complaints.push(error.message));
  page.on('console', (message) => {
    // A page without a login gets a 401, which browsers log as an error.
    if (message.type() === 'error' && !message.text().includes('status of 401')) complaints.push(message.text());
  });
  return { page, complaints };
}

export async function logIn(page: Page, url: string, key: string): Promise<void> {
  await page.goto(url);
  await page.getByLabel('API key').fill(key);
  await page.getByRole('button', { name: 'Log in', exact: true }).click();
  await page.locator('#main').waitFor();
}
