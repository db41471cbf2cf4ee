/**
 * The autoscaler's page and models that a request starts, in a real browser against a real gateway. The autoscaler is a
 * mock.
 */
import { expect, it } from 'vitest';
import * as z from 'zod';
import { MockFactory } from '../support/factory.ts';
import { ordinaryDay } from '../support/factory-day.ts';
import { atEnd } from '../support/processes.ts';
import { findings } from './axe.ts';
import { go, openDoor } from './visitors.ts';

const visitors = openDoor();
const QUIET = { bypassCSP: true, reducedMotion: 'reduce' } as const;

async function openFactory(): Promise<MockFactory> {
  const { gateway } = visitors.house;
  const made = await gateway.admin('POST', 'factory-tokens', { provider: 'lab', name: 'night' });
  const { token } = z.object({ token: z.string() }).parse(made);
  const factory = new MockFactory({ url: gateway.url, token, name: 'night-shift', models: [] });
  factory.report = ordinaryDay(Date.now());
  await factory.open();
  atEnd(() => factory.close());
  return factory;
}

it('an operator sees what a factory does, what waits and why, what failed with its log, and its day as a picture', async () => {
  const { page, complaints } = await visitors.enter(undefined, QUIET);
  await go(page, 'Factory');
  await page.getByText('No factory reports to this gateway.').waitFor();
  await openFactory();
  await page.getByRole('heading', { name: 'night-shift' }).waitFor();
  await page.getByRole('img', { name: /^GPUs, in the last day/ }).waitFor();
  const row = (name: RegExp) => page.getByRole('row', { name });
  await row(/lab\/asleep off, starts on request .* 4 min/).waitFor();
  await row(/lab\/waking loading 40%/).waitFor();
  await row(/lab\/broken failed to start .*CUDA out of memory/).waitFor();
  await row(/1003 alps lab\/busy waits .*Priority/).waitFor();
  await row(/polaris pbs does not answer .*qstat timed out/).waitFor();
  await row(/Starts a job: a request waits for it\./).waitFor();
  await page.getByText('Its engine failed.', { exact: true }).click();
  await page.getByText('torch.OutOfMemoryError').waitFor();
  expect(await findings(page, 'a factory')).toEqual([]);
  expect(complaints).toEqual([]);
});

it('an operator sees demand by kind with its forecast, replicas, changes and latency of a model that is followed', async () => {
  const { gateway } = visitors.house;
  await gateway.admin('PUT', 'timeline', { data: [followed(Date.now())] });
  const { page, complaints } = await visitors.enter(undefined, QUIET);
  await go(page, 'Factory');
  const model = page.getByRole('article', { name: 'org/followed' });
  for (const name of [/^Requests: long prompt/, /^Requests: long answer/, /^Replicas/, /^Latency/])
    await model.getByRole('img', { name }).waitFor();
  await model.getByText('the current layout is the best for the forecast').waitFor();
  await model.getByRole('row', { name: /the mix flips in 3 slots.*done: start TP 1 × PP 2/ }).waitFor();
  expect(await findings(page, 'a timeline')).toEqual([]);
  expect(complaints).toEqual([]);
  if (process.env.OTELA_SCREENSHOT !== undefined) await model.screenshot({ path: process.env.OTELA_SCREENSHOT });
});

/** Forty minutes of a mix that flips in the middle; one minute is not counted, and the first five had no request. */
function followed(now: number): object {
  const minute = (n: number) => new Date(Math.floor(now / 60_000) * 60_000 + (n - 40) * 60_000).toISOString();
  const mix = (n: number) => (n < 5 ? [0, 0] : n < 20 ? [60 + (n % 5), 8] : [9, 50 + (n % 7)]);
  const slots = Array.from({ length: 40 }, (_, n) => {
    const next = mix(n + 1);
    const late = n > 16;
    return {
      at: minute(n),
      requests: n === 30 ? [null, null] : mix(n),
      expected: {
        at: minute(n + 1),
        mean: next,
        low: next.map((one) => one * 0.7),
        high: next.map((one) => one * 1.3),
      },
      replicas: { 'TP 2': late ? 1 : 3, 'TP 1 × PP 2': late ? 3 : 1 },
      decision: n === 16 ? 'switch' : 'keep',
      why: n === 16 ? 'the mix flips in 3 slots' : 'the current layout is the best for the forecast',
      changes: n === 16 ? ['done: stop TP 2', 'done: start TP 1 × PP 2'] : [],
      p50_ms: n < 5 || n === 30 ? null : 700,
      p99_ms: n < 5 || n === 30 ? null : 1_900,
    };
  });
  return { model: 'org/followed', slot_ms: 60_000, kinds: ['long prompt', 'long answer'], slots };
}

it('a user finds models that are off or starting with how long it takes, and asks one in the chat', async () => {
  const { page } = await visitors.enter(visitors.house.key, QUIET);
  await go(page, 'Models');
  const list = page.getByRole('listitem');
  const asleep = list.filter({ hasText: 'lab/asleep' });
  await asleep.getByText('off, starts on request, answers in about 4 min').waitFor();
  await list
    .filter({ hasText: 'lab/waking' })
    .getByText(/^loading 40%, answers in about \d+ s$/)
    .waitFor();
  const broken = list.filter({ hasText: 'lab/broken' });
  await broken.getByText('failed to start; ask an operator').waitFor();
  expect(await broken.getByRole('link').count()).toBe(0);
  expect(await findings(page, 'models that start when asked')).toEqual([]);
  await asleep.getByRole('link', { name: 'Try' }).click();
  await page.getByRole('combobox', { name: /model/i }).click();
  await page
    .getByRole('option', { name: /lab\/asleep/ })
    .getByText('off, starts on request')
    .waitFor();
});
