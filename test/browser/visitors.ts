/** The setup of every test of the dashboard: a test cluster, a browser, and logged-in users. */
import type { Browser, BrowserContextOptions, Page } from 'playwright-core';
import { afterAll, beforeAll, expect } from 'vitest';
import { logIn, openBrowser, openPage, type Visit } from '../support/browser.ts';
import { endAll } from '../support/processes.ts';
import { openTestCluster, type TestCluster } from '../support/test-cluster.ts';

/** Locations of the pages, by the lowest role that sees them. */
const CONSUMER_PAGES = ['models', 'chat', 'batches', 'keys', 'usage', 'access'];
const PROVIDER_PAGES = [...CONSUMER_PAGES, 'nodes', 'providers'];
const ADMIN_TABS = ['users', 'projects', 'routing', 'peers', 'settings', 'audit'];
export const PAGES = {
  consumer: CONSUMER_PAGES,
  provider: PROVIDER_PAGES,
  operator: [...PROVIDER_PAGES, 'factory', 'regions', ...ADMIN_TABS.map((tab) => `admin/${tab}`)],
};

/** Setup of one file, available from its first test on. */
interface Visitors {
  house: TestCluster;
  browser: Browser;
  /** Logs in, by default with the operator's key. */
  enter(key?: string, options?: BrowserContextOptions): Promise<Visit>;
}

/** Call once, at the top of a file. */
export function openDoor(): Visitors {
  let there: { house: TestCluster; browser: Browser } | undefined;
  const open = () => {
    if (there === undefined) throw new Error('the house is open from the first test on');
    return there;
  };
  beforeAll(async () => {
    const [cluster, browser] = [await openTestCluster(), await openBrowser()];
    there = { house: cluster, browser };
  });
  afterAll(endAll);
  return {
    get house() {
      return open().house;
    },
    get browser() {
      return open().browser;
    },
    enter: async (key = open().house.gateway.adminKey, options = {}) => {
      const visit = await openPage(open().browser, options);
      await logIn(visit.page, open().house.gateway.url, key);
      return visit;
    },
  };
}

export async function loaded(page: Page): Promise<void> {
  await expect.poll(() => page.getByText('Loading …').count()).toBe(0);
}

export const go = (page: Page, name: string) =>
  page.getByRole('navigation').getByRole('link', { name, exact: true }).click();
