/** The nodes' page, in a real browser against a real gateway with a real agent; the engine is a stand-in. */
import { expect, it } from 'vitest';
import * as z from 'zod';
import { startAgent } from '../support/agent.ts';
import { startEngine } from '../support/engine.ts';
import { atEnd } from '../support/processes.ts';
import { go, openDoor } from './visitors.ts';

const SECOND = 'stand-in/model-2';
const visitors = openDoor();

it('nodes: the map, one node in detail, a filter, and what happened', async () => {
  const { page, complaints } = await visitors.enter();
  await go(page, 'Nodes');
  await page.getByRole('img', { name: /^One gateway and 1 cluster/ }).waitFor();
  await page.getByLabel('Find').fill('nobody');
  await page.getByText('No node is here').waitFor();
  await page.getByLabel('Find').fill('LAB model-1');
  const [node] = await visitors.house.gateway.nodes();
  await page.getByRole('button', { name: node?.session.slice(0, 8) ?? '' }).click();
  await page.getByRole('dialog').getByText('connected').waitFor();
  await page.getByRole('dialog').getByText('closed').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const engine = await startEngine({ models: [SECOND] });
  atEnd(() => engine.close());
  const agent = await startAgent({
    gateways: [visitors.house.gateway.url],
    token: visitors.house.token,
    engineUrl: engine.url,
  });
  const history = page.getByRole('table').last().getByRole('row');
  await history.filter({ hasText: 'joined' }).nth(1).waitFor();
  agent.signal('SIGTERM');
  await history.getByText('left').waitFor();
  const told = await history.allInnerTexts();
  const life = told.filter((line) => line.includes(node?.session.slice(0, 8) ?? '–'));
  // From before the page was opened.
  expect(life.map((line) => line.split('\t')[1]?.trim())).toEqual(['serving', 'joined']);
  await page.getByRole('img', { name: /^Over time/ }).waitFor();
  expect(complaints).toEqual([]);
});

it('a thousand nodes (a stand-in registry) are drawn and filtered without a hang', async () => {
  const { page } = await visitors.enter();
  const [like] = z
    .object({ data: z.array(z.looseObject({ session: z.string() })) })
    .parse(await visitors.house.gateway.admin('GET', '../v1/registry/nodes')).data;
  const data = Array.from({ length: 1000 }, (_, n) => ({
    ...like,
    session: `${String(n).padStart(4, 'a')}${'a'.repeat(22)}`,
    cluster: `c${n % 40}`,
  }));
  await page.route('**/v1/registry/nodes/stream', (route) =>
    route.fulfill({
      headers: { 'content-type': 'text/event-stream' },
      body: `event: snapshot\ndata: ${JSON.stringify({ object: 'list', data })}\n\n`,
    }),
  );
  await page.goto(`${visitors.house.gateway.url}/#/nodes`);
  await page.reload();
  await page.locator('p').getByText('1,000 nodes').waitFor();
  const startedAt = performance.now();
  await page.getByLabel('Find').fill('c17');
  await page.locator('p').getByText('25 nodes').waitFor();
  expect(performance.now() - startedAt).toBeLessThan(3_000);
});
