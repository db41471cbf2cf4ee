/** axe's findings on the current page. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';
import * as z from 'zod';

const resultSchema = z.object({
  violations: z.array(
    z.object({ id: z.string(), impact: z.string().nullish(), nodes: z.array(z.object({ html: z.string() })) }),
  ),
});

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** One line per violated rule. The context needs `bypassCSP`, because the page's own policy would block axe. */
export async function findings(page: Page, where: string): Promise<string[]> {
  if (!(await page.evaluate("'axe' in window"))) await page.evaluate(AXE);
  const { violations } = resultSchema.parse(await page.evaluate('axe.run()'));
  return violations.map(({ id, impact, nodes }) => `${where}: ${id} (${impact}) ${nodes[0]?.html.slice(0, 120)}`);
}
