/** What holds for every page, in a real browser against a real gateway with a real agent; the engine is a stand-in. */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { expect, it } from 'vitest';
import * as z from 'zod';
import { loaded, openDoor, PAGES } from './visitors.ts';

const visitors = openDoor();

/** One per page and scheme; `serious` and `critical` are what the standard forbids. */
const resultSchema = z.object({
  violations: z.array(
    z.object({ id: z.string(), impact: z.string().nullish(), nodes: z.array(z.object({ html: z.string() })) }),
  ),
});

for (const colorScheme of ['light', 'dark'] as const) {
  it(`axe finds nothing serious on any page (${colorScheme})`, async () => {
    const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
    // The page's own policy would keep the tester out.
    const { page } = await visitors.enter(visitors.house.gateway.adminKey, {
      colorScheme,
      bypassCSP: true,
      reducedMotion: 'reduce',
    });
    for (const name of PAGES) {
      await page.goto(`${visitors.house.gateway.url}/#/${name}`);
      await page.getByRole('heading', { level: 1 }).waitFor();
      await loaded(page);
      await page.evaluate(axe);
      const { violations } = resultSchema.parse(await page.evaluate('axe.run()'));
      const serious = violations.filter(({ impact }) => impact === 'serious' || impact === 'critical');
      expect(serious.map(({ id, nodes }) => `${name}: ${id} ${nodes[0]?.html.slice(0, 120)}`)).toEqual([]);
    }
  });
}

it('on a phone nothing is wider than the page', async () => {
  const { page } = await visitors.enter(visitors.house.gateway.adminKey, { viewport: { width: 360, height: 740 } });
  for (const name of PAGES) {
    await page.goto(`${visitors.house.gateway.url}/#/${name}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await loaded(page);
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBeLessThanOrEqual(360);
  }
});
