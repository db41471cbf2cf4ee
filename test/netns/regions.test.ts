/**
 * Three regions in network namespaces, 5, 40 and 120 ms away, with three electricity prices. One model follows the plan
 * of `otela-plan regions`, another model on the same engines uses least-load: both get the same trace at the same
 * moments, so that a busy machine slows both.
 */
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { z } from 'zod';
import { errorText } from '../../shared/text/error-text.ts';
import { startAgent } from '../support/agent.ts';
import { endAll, eventually, freePort, Managed, temporaryDirectory } from '../support/processes.ts';
import { NODE, PLAN_MAIN, ROOT } from '../support/where.ts';
import { on, openWide, type Wide } from './network.ts';

afterEach(endAll);

const [PLANNED, PLAIN] = ['stand-in/planned', 'stand-in/plain'];
const REGIONS = { c1: 'near', c2: 'middle', c3: 'far' };
/** Timeout until all have joined, on a busy machine. */
const TOGETHER_MS = 90_000;
/** An engine's time for one request, and its number of concurrent requests. */
const [SERVICE_MS, SLOTS] = [400, 12];
/** Requests per second of each model, and for how many seconds: a day with a peak. */
const TRACE = [
  [4, 6],
  [8, 6],
  [3, 6],
] as const;
const SLOT_S = 2;

/** USD per kWh: the cheap region changes, as between night and noon. */
const NIGHT = { near: 0.2, middle: 0.08, far: 0.3 };
const NOON = { near: 0.08, middle: 0.3, far: 0.2 };
type Prices = Record<string, number>;

const planSchema = z.object({
  sequence: z.number(),
  models: z.record(z.string(), z.object({ shares: z.record(z.string(), z.number()) })),
});

interface Answer {
  model: string;
  status: number;
  text: string;
  region: string;
  ms: number;
  usdKwh: number;
}

async function region(wide: Wide, cluster: keyof typeof REGIONS): Promise<Managed> {
  const token = await wide.gateway.createJoinToken('lab', cluster);
  const models = [PLANNED, PLAIN].flatMap((model) => ['--model', model]);
  const engine = join(ROOT, 'test/support/engine.ts');
  const command = [NODE, engine, '--port', String(await freePort()), '--slots', String(SLOTS), ...models];
  const args = ['--region', REGIONS[cluster]];
  return startAgent({ gateways: [wide.gateway.url], token, command, args, prefix: on(`${cluster}h1`) });
}

const setPrices = (wide: Wide, prices: Prices) =>
  wide.gateway.admin('PUT', 'regions/prices', {
    as_of: new Date().toISOString(),
    source: 'a test',
    prices: Object.entries(prices).map(([name, usd_kwh]) => ({ region: name, usd_kwh })),
  });

async function startPlanner(wide: Wide): Promise<Managed> {
  const keyFile = join(await temporaryDirectory('otela-plan'), 'key');
  await writeFile(keyFile, wide.gateway.adminKey);
  await chmod(keyFile, 0o600);
  // A mock engine answers in 0.4 s and uses little electricity, so a dollar must weigh much to matter.
  const flags = [
    '--every',
    String(SLOT_S),
    '--smoothness',
    '0.05',
    '--usd-worth',
    '600000',
    '--concurrency',
    String(SLOTS),
  ];
  const where = ['--gateway', wide.gateway.url, '--key-file', keyFile, '--model', PLANNED, '--apply'];
  return new Managed([NODE, PLAN_MAIN, 'regions', ...where, ...flags], { label: 'planner' });
}

class Client {
  readonly answers: Answer[] = [];
  readonly #wide: Wide;
  readonly #regions: ReadonlyMap<string, string>;
  prices: Prices = NIGHT;

  constructor(wide: Wide, regions: ReadonlyMap<string, string>) {
    this.#wide = wide;
    this.#regions = regions;
  }

  /** One request to each model at the same moment. */
  pair(): Promise<Answer[]> {
    return Promise.all([PLANNED, PLAIN].map((model) => this.#ask(model)));
  }

  async #ask(model: string): Promise<Answer> {
    const startedAt = performance.now();
    const { prices } = this;
    const messages = [{ role: 'user', content: 'Say something.' }];
    const stand_in = { tokens: 1, delayMs: SERVICE_MS };
    const response = await this.#wide.ask('/v1/chat/completions', { model, messages, stand_in });
    const text = await response.text();
    const where = this.#regions.get(response.headers.get('x-otela-node') ?? '') ?? '';
    const ms = performance.now() - startedAt;
    const answer = { model, status: response.status, text, region: where, ms, usdKwh: prices[where] ?? 0 };
    this.answers.push(answer);
    return answer;
  }

  /** Sends the trace once. Resolves when all requests are answered. */
  async replay(): Promise<Answer[]> {
    const asked: Promise<Answer[]>[] = [];
    for (const [rate, seconds] of TRACE)
      for (let n = 0; n < rate * seconds; n++) {
        asked.push(this.pair());
        await sleep(1_000 / rate);
      }
    return (await Promise.all(asked)).flat();
  }
}

/** Mean of the middle values: a machine that stalled for a second shows nothing about a plan. */
function trimmedMean(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const cut = Math.floor(sorted.length / 10);
  const kept = sorted.slice(cut, sorted.length - cut);
  return kept.reduce((sum, value) => sum + value, 0) / kept.length;
}

function of(answers: readonly Answer[], model: string) {
  const own = answers.filter((answer) => answer.model === model);
  const counts = Object.fromEntries(
    Object.values(REGIONS).map((name) => [name, own.filter((answer) => answer.region === name).length]),
  );
  const usd = own.reduce((sum, { usdKwh }) => sum + usdKwh, 0) / own.length;
  return { n: own.length, ms: trimmedMean(own.map(({ ms }) => ms)), usd, counts };
}

it('a plan of regions answers sooner and for less than least-load, follows prices, and loses no request with a region', async () => {
  const wide = await openWide({ delayMs: [5, 40, 120] });
  await Promise.all((['c1', 'c2', 'c3'] as const).map((cluster) => region(wide, cluster)));
  const nodes = await wide.gateway.serving(3, TOGETHER_MS);
  const regions = new Map(nodes.map(({ session, cluster }) => [session, REGIONS[cluster as keyof typeof REGIONS]]));
  await setPrices(wide, NIGHT);
  const planner = await startPlanner(wide);
  const client = new Client(wide, regions);
  const shares = async () => {
    const plan = planSchema.safeParse(await wide.gateway.admin('GET', 'regions/plan').catch(() => undefined)).data;
    return plan?.models[PLANNED]?.shares;
  };
  /** Requests continue until there is a plan: without requests there is nothing to measure. */
  const until = (what: string, holds: (share: Record<string, number>) => boolean) =>
    eventually(what, TOGETHER_MS, async () => {
      await Promise.all(Array.from({ length: 3 }, () => client.pair()));
      const now = await shares();
      return now !== undefined && holds(now) ? true : undefined;
    });
  try {
    await until('the cheap region has the most of the plan', ({ middle = 0 }) => middle > 0.6);
    const night = await client.replay();
    client.prices = NOON;
    await setPrices(wide, NOON);
    await until('the plan follows the prices', ({ near = 0 }) => near > 0.6);
    const noon = await client.replay();
    const both = [...night, ...noon];
    const [ours, plain] = [of(both, PLANNED), of(both, PLAIN)];
    console.log(
      `plan against least-load (busy machine): response ${ours.ms.toFixed(0)} against ${plain.ms.toFixed(0)} ms, ${(100 * (ours.ms / plain.ms - 1)).toFixed(0)} %; electricity ${(100 * (ours.usd / plain.usd - 1)).toFixed(0)} %; ${JSON.stringify(ours.counts)} against ${JSON.stringify(plain.counts)}`,
    );
    expect(ours.n).toBe(plain.n);
    expect(ours.ms).toBeLessThan(plain.ms);
    expect(ours.usd).toBeLessThan(0.85 * plain.usd);
    // The nearest region fails while it has most of the work: packets vanish without any notice.
    const before = client.answers.length;
    const lost = client.replay();
    await sleep(4_000);
    wide.network.link('cut', 'c1nat');
    await lost;
    await eventually('the lost region has no share', TOGETHER_MS, async () => {
      await client.pair();
      const now = await shares(); // a missing plan does not count as a plan without the region
      return now !== undefined && (now.near ?? 0) === 0 ? true : undefined;
    });
    const after = await Promise.all(Array.from({ length: 20 }, () => client.pair()));
    expect(after.flat().filter(({ region: name }) => name === 'near')).toEqual([]);
    const meanwhile = of(client.answers.slice(before), PLANNED);
    console.log(`with a region lost: ${JSON.stringify(meanwhile.counts)}`);
    expect(meanwhile.counts.middle).toBeGreaterThan(0);
    expect(meanwhile.counts.far).toBeGreaterThan(0);
    expect(client.answers.filter(({ status }) => status !== 200)).toEqual([]);
    wide.network.link('heal', 'c1nat');
    await until('the region is back in the plan', ({ near = 0 }) => near > 0.3);
  } catch (error) {
    throw planner.failure(errorText(error));
  }
});
