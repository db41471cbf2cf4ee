/** Actions on the page of the chat. */
import type { Page } from 'playwright-core';
import { expect } from 'vitest';

export async function send(page: Page, text: string): Promise<void> {
  await page.getByLabel('Message').fill(text);
  await page.getByRole('button', { name: 'Send' }).click();
}

/** Waits until the answer has ended. */
export async function answered(page: Page): Promise<void> {
  await page.getByRole('button', { name: 'Send' }).waitFor();
  await expect.poll(() => page.locator('[aria-busy=true]').count()).toBe(0);
}
