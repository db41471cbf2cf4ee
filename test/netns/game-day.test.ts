/**
 * A game day: two gateways, two clusters with twelve agents in total, and clients that send requests all day. A gateway
 * is killed, a disk fills up, a provider turns hostile, and so on. Clients see no error, and the operator finds each
 * event in the log, the metrics, an alert, and a request's timeline. `npm run soak -- game-day` spreads it over an
 * hour.
 */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { NO_POSTGRES, which } from '../support/abilities.ts';
import { endAll, eventually } from '../support/processes.ts';
import type { Answered } from '../support/two-addresses.ts';
import { type Day, openDay } from './game-day/day.ts';
import { EVENTS, type GameEvent, refusals } from './game-day/events.ts';

const absent = ['prometheus', 'curl', 'openssl'].find((program) => which(program) === undefined);
const missing = absent === undefined ? NO_POSTGRES : `not installed: ${absent}`;
/** From an event until it is visible. */
const TOLD_MS = 60_000;
const EVENT_MS = 600_000;
/** Quiet time before each event. */
const CALM_MS = Number(process.env.OTELA_GAME_DAY_CALM_S ?? 0) * 1_000;
/** Responses to clients between two events: enough to know that everything works. */
const CALM_ANSWERS = 20;
/** Timelines that are searched for a mention of the event. */
const STORIES = 12;

let day: Day;
beforeAll(async () => {
  if (missing === undefined) day = await openDay();
});
beforeEach(({ skip }) => {
  if (missing !== undefined) skip(missing);
});
afterAll(endAll);

async function calm(ms = 0): Promise<void> {
  const { client } = day;
  const [served, until] = [client.served, Date.now() + ms];
  await eventually('people are answered', ms + TOLD_MS, () =>
    client.served >= served + CALM_ANSWERS && Date.now() >= until ? true : undefined,
  );
}

/**
 * The timeline of a request of that time that mentions the event. Requests with more than one attempt are searched
 * first, then the newest.
 */
async function story({ story }: GameEvent, from: number, to: number): Promise<string> {
  const tries = ({ id, attempts }: Answered) => (attempts > 1 ? 2 : 0) + (id.endsWith('-0') ? 0 : 1);
  const touched = [...day.client.answered, ...day.others]
    .filter(({ at, sentAt }) => at >= from && sentAt <= to)
    .sort((a, b) => tries(b) - tries(a) || b.at - a.at)
    .slice(0, STORIES);
  return eventually('a story that tells of it', TOLD_MS, async () => {
    const told: string[] = [];
    for (const { id, url } of touched) {
      const gateway = [day.first, day.second].find((one) => one.url === url) ?? day.first;
      const text = await day.ask(gateway, 'why', id);
      if (story.test(text)) return text;
      told.push(text);
    }
    throw new Error(`none of ${told.length} has ${story}: ${told.join('\n')}`);
  });
}

async function find(event: GameEvent): Promise<void> {
  const { prometheus } = day;
  await event.happens(day);
  const [where, line] = event.log;
  await Promise.all([
    where === 'audit'
      ? eventually(`${line} in the audit`, TOLD_MS, async () => line.test(await day.operate('audit')) || undefined)
      : Promise.any(
          (where === 'either' ? [day.first, day.second] : [day[where]]).map((one) => one.process.line(line, TOLD_MS)),
        ),
    eventually(event.metric, TOLD_MS, async () => (await prometheus.query(event.metric)).length > 0 || undefined),
    event.alertEnds === true ? prometheus.quiet(event.alert, TOLD_MS) : prometheus.fires(event.alert, TOLD_MS),
  ]);
}

describe.each(EVENTS)('$what', (event) => {
  it(
    'is found in the log, the metrics, an alert and a story, and people see no error',
    async ({ skip }) => {
      const reason = event.skipped?.(day);
      if (reason !== undefined) skip(reason);
      await calm(CALM_MS);
      // If a busy machine delays a scrape by a second, the gateway counts as down.
      await eventually(`no sample of ${event.metric} before`, TOLD_MS, async () =>
        (await day.prometheus.query(event.metric)).length === 0 ? true : undefined,
      );
      const since = Date.now();
      const failure = await find(event).then(
        () => undefined,
        (error: unknown) => error,
      );
      const until = Date.now();
      // Found or not, the event is over before the next one.
      await event.mend(day);
      const mended = Date.now();
      if (failure !== undefined) throw failure;
      await calm();
      const found = await story(event, since, until);
      const seconds = (from: number, to: number) => `${((to - from) / 1_000).toFixed(1)} s`;
      console.log(
        `${event.what}: found after ${seconds(since, until)}, mended ${seconds(until, mended)} later\n${found}`,
      );
      expect(day.client.errors).toEqual([]);
    },
    EVENT_MS + CALM_MS,
  );
});

it('of all that people asked nothing failed; the revoked key alone was refused', async () => {
  await day.client.stop();
  expect(day.client.errors).toEqual([]);
  expect(day.client.served).toBe(day.client.sent);
  expect(day.client.retried).toBeGreaterThan(0);
  expect(refusals().toSorted()).toEqual([200, 401]);
});
