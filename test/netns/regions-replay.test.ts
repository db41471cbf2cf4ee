/**
 * Three gateways on one database, each in a cluster behind its own NAT, with one agent each. A recorded trace (Azure
 * 2023: an hour of code and conversation) is replayed at 60 times its speed. Three models run on the same engines and
 * get the same requests at the same moments: one follows `otela-plan regions` with its default settings, except for
 * slots of 2 s, one is routed by least-load, and one by round-robin. `npm run soak -- regions-week` replays ServeGen's
 * first week instead, with prices that change each hour of the trace.
 */
import { readFileSync } from 'node:fs';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, expect, it } from 'vitest';
import { z } from 'zod';
import { errorText } from '../../shared/text/error-text.ts';
import { NO_POSTGRES } from '../support/abilities.ts';
import { startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { GatewayProcesses } from '../support/gateway-processes.ts';
import { patience } from '../support/patience.ts';
import { endAll, eventually, freePort, Managed, temporaryDirectory } from '../support/processes.ts';
import { NODE, PLAN_MAIN, ROOT } from '../support/where.ts';
import { Network, on } from './network.ts';
import { azureHour, HOURS_MAX, SPEED, serveGenHours, type Trace } from './regions-trace.ts';

afterEach(endAll);

const CLUSTERS = [1, 2, 3] as const;
type Cluster = (typeof CLUSTERS)[number];
const REGIONS = { 1: 'west', 2: 'middle', 3: 'east' } as const;
const MODELS = { plan: 'stand-in/planned', 'least-load': 'stand-in/least', 'round-robin': 'stand-in/turns' } as const;
type Policy = keyof typeof MODELS;
/** Hours of ServeGen's trace; 0: Azure's hour. */
const HOURS = Math.min(HOURS_MAX, Number(process.env.OTELA_REGIONS_HOURS ?? 0));
/** Mean USD per kWh. */
const PRICES: Record<string, number> = { west: 0.2, middle: 0.05, east: 0.3 };
/** Change of a price during a day, as a share of its mean; each region has its peak at another hour. */
const DAY_SWING = HOURS > 0 ? 0.4 : 0;
/** An hour and a day of the trace, in milliseconds of the replay. */
const [HOUR_MS, DAY_MS] = [3_600_000 / SPEED, 86_400_000 / SPEED];
/** One-way delay of each cluster's uplink: gateways reach their own cluster without it. */
const DELAY_MS = [10, 30, 60] as const;
const PORT = 8080;
/** The gateways reach each other here. */
const LINKS_PORT = 8790;
/** Timeout until all have joined, on a busy machine. */
const TOGETHER_MS = 120_000;
/** Requests that an engine runs concurrently: with two, ServeGen's 2 requests/s fill a third of them. */
const SLOTS = HOURS > 0 ? 2 : 6;
/** Windows of the balance and of the change of shares, milliseconds. */
const WINDOW_MS = 6_000;

const answerSchema = z.object({
  model: z.string(),
  afterMs: z.number(),
  delayMs: z.number(),
  status: z.number(),
  node: z.string(),
  ms: z.number(),
});
type Answer = z.infer<typeof answerSchema> & { origin: string; region: string };

/** By the hour of the trace. */
function priceAt(region: string, afterMs: number): number {
  const phase = Object.values<string>(REGIONS).indexOf(region) / CLUSTERS.length;
  const hour = Math.floor(Math.max(0, afterMs) / HOUR_MS);
  return (PRICES[region] ?? 0) * (1 + DAY_SWING * Math.sin(2 * Math.PI * (hour / 24 + phase)));
}

const setPrices = (first: Gateway, afterMs: number) =>
  first.admin('PUT', 'regions/prices', {
    as_of: new Date().toISOString(),
    source: 'a test',
    prices: Object.values(REGIONS).map((region) => ({ region, usd_kwh: priceAt(region, afterMs) })),
  });

async function startGateways(network: Network): Promise<Gateway[]> {
  const processes = await GatewayProcesses.start(0);
  const names = CLUSTERS.map((cluster) => {
    network.publish(cluster, LINKS_PORT);
    return network.publish(cluster, PORT);
  });
  const start = (cluster: Cluster) => {
    const name = names[cluster - 1];
    return Gateway.start({
      prefix: on(`c${cluster}h2`),
      host: '0.0.0.0',
      port: PORT,
      publicHost: `198.51.100.2${cluster}`,
      args: ['--url', `http://${name}:${PORT}`, ...processes.flags(`${name}:${LINKS_PORT}`)],
      env: { GATEWAY_REGION: REGIONS[cluster] },
    });
  };
  // The first one creates the tables and the keys.
  return [await start(1), ...(await Promise.all(([2, 3] as const).map(start)))];
}

async function startRegion(first: Gateway, cluster: Cluster): Promise<void> {
  const token = await first.createJoinToken('lab', `c${cluster}`);
  const models = Object.values(MODELS).flatMap((model) => ['--model', model]);
  const engine = join(ROOT, 'test/support/engine.ts');
  const command = [NODE, engine, '--port', String(await freePort()), '--slots', String(SLOTS), ...models];
  const gateways = CLUSTERS.map((one) => `http://gateway${one}:${PORT}`);
  await startAgent({ gateways, token, command, args: ['--region', REGIONS[cluster]], prefix: on(`c${cluster}h1`) });
}

async function startPlanner([first, ...others]: readonly Gateway[]): Promise<Managed> {
  if (first === undefined) throw new Error('no gateway');
  const keyFile = join(await temporaryDirectory('otela-plan'), 'key');
  await writeFile(keyFile, await first.createKey('planner', { role: 'operator' }));
  await chmod(keyFile, 0o600);
  const where = ['--gateway', first.url, '--key-file', keyFile, '--model', MODELS.plan, '--apply', '--every', '2'];
  return new Managed([NODE, PLAN_MAIN, 'regions', ...where, ...others.flatMap(({ url }) => ['--origin', url])], {
    label: 'planner',
  });
}

/** A key for each model; the key's policy routes its requests. */
async function keysOf(first: Gateway): Promise<Record<string, string>> {
  const keys: Record<string, string> = {};
  for (const [policy, model] of Object.entries(MODELS)) {
    const routing = policy === 'plan' ? {} : { routing: { policy } };
    keys[model] = await first.createKey(policy, routing);
  }
  return keys;
}

/** Sends the trace once through all three gateways. */
async function replay(
  requests: Trace,
  keys: Record<string, string>,
  regionOf: ReadonlyMap<string, string>,
  startAt = Date.now() + 5_000,
): Promise<Answer[]> {
  const found = await Promise.all(
    CLUSTERS.map(async (cluster) => {
      const folder = await temporaryDirectory('otela-replay');
      const [input, output] = [join(folder, 'requests.json'), join(folder, 'answers.json')];
      await writeFile(input, JSON.stringify({ keys, startAt, requests: requests[cluster - 1] ?? [] }));
      const client = join(ROOT, 'test/netns/regions-client.ts');
      const url = `http://gateway${cluster}:${PORT}`;
      const process = new Managed([...on(`c${cluster}h2`), NODE, client, url, input, output], { label: 'client' });
      const { code } = await process.exited;
      if (code !== 0) throw process.failure('a client failed');
      return z
        .array(answerSchema)
        .parse(JSON.parse(readFileSync(output, 'utf8')))
        .map((answer): Answer => ({ ...answer, origin: REGIONS[cluster], region: regionOf.get(answer.node) ?? '' }));
    }),
  );
  return found.flat();
}

interface Figures {
  responses: number;
  failed: number;
  responseMs: number;
  /** Mean price of the electricity of a second of service, USD per kWh. */
  usdKwh: number;
  /** 1/(1+CV) over regions of the seconds of service in a window; mean over windows. */
  balance: number;
  /** Σ over origins of ‖A_k − A_{k−1}‖², mean over windows. */
  change: number;
}

function figuresOf(all: readonly Answer[], policy: Policy): Figures {
  const own = all.filter(({ model }) => model === MODELS[policy]);
  const good = own.filter(({ status }) => status === 200);
  const mean = (values: readonly number[]) => values.reduce((sum, one) => sum + one, 0) / Math.max(1, values.length);
  const seconds = (answers: readonly Answer[], region: string) =>
    answers.filter((one) => one.region === region).reduce((sum, { delayMs }) => sum + delayMs / 1e3, 0);
  const regions = Object.values(REGIONS);
  const windows = Map.groupBy(good, ({ afterMs }) => Math.floor(afterMs / WINDOW_MS));
  const balances: number[] = [];
  const changes: number[] = [];
  let before: Map<string, number[]> | undefined;
  for (const [, answers] of [...windows].sort(([a], [b]) => a - b)) {
    const used = regions.map((region) => seconds(answers, region));
    const level = mean(used);
    balances.push(1 / (1 + Math.sqrt(mean(used.map((one) => (one - level) ** 2))) / Math.max(1e-9, level)));
    const shares = new Map(
      regions.map((origin) => {
        const sent = answers.filter((one) => one.origin === origin);
        return [
          origin,
          regions.map((to) => sent.filter(({ region }) => region === to).length / Math.max(1, sent.length)),
        ];
      }),
    );
    const last = before;
    if (last !== undefined)
      changes.push(
        [...shares].reduce(
          (sum, [origin, row]) =>
            sum + row.reduce((s, share, at) => s + (share - (last.get(origin)?.[at] ?? 0)) ** 2, 0),
          0,
        ),
      );
    before = shares;
  }
  const priced = good.map(({ region, delayMs, afterMs }) => priceAt(region, afterMs) * delayMs);
  return {
    responses: good.length,
    failed: own.length - good.length,
    responseMs: mean(good.map(({ ms }) => ms)),
    usdKwh: mean(priced) / Math.max(1e-9, mean(good.map(({ delayMs }) => delayMs))),
    balance: mean(balances),
    change: mean(changes),
  };
}

const figuresByPolicy = (answers: readonly Answer[]) =>
  Object.fromEntries((Object.keys(MODELS) as Policy[]).map((policy) => [policy, figuresOf(answers, policy)])) as Record<
    Policy,
    Figures
  >;

/** Replays the trace, and sets the prices of each of its hours. */
async function replayWithPrices(
  first: Gateway,
  requests: Trace,
  keys: Record<string, string>,
  regionOf: ReadonlyMap<string, string>,
): Promise<Answer[]> {
  const startAt = Date.now() + 5_000;
  const over = new AbortController();
  const hourly = (async () => {
    for (let hour = 0; hour < HOURS; hour++) {
      await sleep(Math.max(0, startAt + hour * HOUR_MS - Date.now()), undefined, { signal: over.signal });
      await setPrices(first, hour * HOUR_MS);
    }
  })().catch((error: unknown) => {
    if (!over.signal.aborted) throw error;
  });
  const [answers] = await Promise.all([replay(requests, keys, regionOf, startAt).finally(() => over.abort()), hourly]);
  return answers;
}

const REPLAY_MS = HOURS > 0 ? HOURS * HOUR_MS : HOUR_MS;

it.skipIf(NO_POSTGRES !== undefined)(
  `a trace through three gateways: shares of each origin answer sooner than turns, and lose no request${NO_POSTGRES ? ` (${NO_POSTGRES})` : ''}`,
  async () => {
    const network = await Network.up({ delayMs: DELAY_MS });
    const gateways = await startGateways(network);
    const [first] = gateways;
    if (first === undefined) throw new Error('no gateway');
    await Promise.all(CLUSTERS.map((cluster) => startRegion(first, cluster)));
    const keys = await keysOf(first);
    const regionOf = new Map<string, string>();
    for (const gateway of gateways)
      for (const { session, cluster } of await gateway.serving(3, TOGETHER_MS))
        regionOf.set(session, REGIONS[Number(cluster.slice(1)) as Cluster]);
    await setPrices(first, 0);
    const planner = await startPlanner(gateways);
    try {
      const requests = HOURS > 0 ? serveGenHours(HOURS) : azureHour();
      // Requests must be measured before there is a plan with a row for each origin.
      await eventually('each origin has a row', TOGETHER_MS, async () => {
        await replay(
          requests.map((own) => own.slice(0, 20).map((one, at) => ({ ...one, afterMs: 400 * at }))),
          keys,
          regionOf,
        );
        const plan = planSchema.safeParse(await first.admin('GET', 'regions/plan').catch(() => undefined)).data;
        return Object.keys(plan?.models[MODELS.plan]?.origins ?? {}).length === CLUSTERS.length ? true : undefined;
      });
      const answers = await replayWithPrices(first, requests, keys, regionOf);
      if (HOURS > 24)
        for (const [day, own] of Map.groupBy(answers, ({ afterMs }) => Math.floor(afterMs / DAY_MS))) {
          console.log(`day ${day + 1}`);
          console.table(figuresByPolicy(own));
        }
      const figures = figuresByPolicy(answers);
      console.table(figures);
      const { sequence } = planSchema.parse(await first.admin('GET', 'regions/plan'));
      console.log(`${HOURS > 0 ? HOURS : 1} h of the trace in ${REPLAY_MS / 60_000} min, ${sequence} plans`);
      const sent = requests.reduce((sum, own) => sum + own.length, 0);
      for (const { responses, failed } of Object.values(figures))
        expect({ responses, failed }).toEqual({ responses: sent, failed: 0 });
      expect(figures.plan.responseMs).toBeLessThan(figures['round-robin'].responseMs);
      expect(figures.plan.change).toBeGreaterThan(0);
    } catch (error) {
      throw planner.failure(errorText(error));
    }
  },
  patience(REPLAY_MS + 2 * TOGETHER_MS),
);

const planSchema = z.object({
  sequence: z.number(),
  models: z.record(z.string(), z.object({ origins: z.record(z.string(), z.unknown()).optional() })),
});
