/** The page of regions, in a real browser against a real gateway with a real agent; the engine is a mock. */
import { expect, it } from 'vitest';
import { chatBody, MODEL } from '../support/test-cluster.ts';
import { findings } from './axe.ts';
import { go, openDoor } from './visitors.ts';

const visitors = openDoor();
const QUIET = { bypassCSP: true, reducedMotion: 'reduce' } as const;

it('an operator sees regions with prices, round trips and the plan beside what went where', async () => {
  const { house: cluster } = visitors;
  const { gateway } = cluster;
  const { page, complaints } = await visitors.enter(undefined, QUIET);
  await go(page, 'Regions');
  await page.getByText('There is no valid plan').waitFor();
  const row = (name: RegExp) => page.getByRole('row', { name });
  await row(/no region 1 unknown/).waitFor();
  await gateway.admin('PUT', 'regions/prices', {
    as_of: '2020-01-01T00:00:00Z',
    prices: [{ region: 'moon', usd_kwh: 0.25 }],
  });
  await gateway.admin('PUT', 'regions/plan', {
    planner: 'night',
    sequence: 1,
    holds_ms: 600_000,
    models: { [MODEL]: { shares: { '': 0.75, moon: 0.25 } } },
    warm: [{ region: 'moon', model: MODEL, replicas: 2 }],
    notes: ['the price of moon is stale: assuming the median'],
  });
  const answer = await cluster.ask('/v1/chat/completions', chatBody({ tokens: 1 }));
  expect(answer.status, await answer.text()).toBe(200);
  await row(/moon 0 0\.250 USD\/kWh old/).waitFor();
  // A region from the operator's prices is listed first.
  await row(/plan 25%\s*went 0%\s*0 serving\s*keep 2 warm.*plan 75%\s*went 100%\s*1 serving/).waitFor();
  await row(/no region 1 unknown \d+ ms/).waitFor();
  await page.getByText(/Created by night, valid until/).waitFor();
  await page.getByText('the price of moon is stale').waitFor();
  expect(await findings(page, 'regions')).toEqual([]);
  expect(complaints).toEqual([]);
});
