/**
 * Three gateways of one institution, each in a cluster behind its own NAT, with one agent each. A recorded trace (Azure
 * 2023: an hour of code and conversation) is replayed at 60 times its speed. Three models run on the same engines and
 * get the same requests at the same moments: one follows `otela-plan regions` with its default settings, except for
 * slots of 2 s, one is routed by least-load, and one by round-robin.
 */
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { chmod, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterEach, expect, it } from 'vitest';
import { z } from 'zod';
import { errorText } from '../../shared/text/error-text.ts';
import { startAgent } from '../support/agent.ts';
import { Gateway } from '../support/gateway.ts';
import { endAll, eventually, freePort, Managed, temporaryDirectory } from '../support/processes.ts';
import { GATEWAY_MAIN, NODE, PLAN_MAIN, ROOT } from '../support/where.ts';
import { Network, on } from './network.ts';

afterEach(endAll);

const CLUSTERS = [1, 2, 3] as const;
type Cluster = (typeof CLUSTERS)[number];
const REGIONS = { 1: 'west', 2: 'middle', 3: 'east' } as const;
const MODELS = { plan: 'stand-in/planned', 'least-load': 'stand-in/least', 'round-robin': 'stand-in/turns' } as const;
type Policy = keyof typeof MODELS;
/** USD per kWh. */
const PRICES: Record<string, number> = { west: 0.2, middle: 0.05, east: 0.3 };
/** One-way delay of each cluster's uplink: gateways reach their own cluster without it. */
const DELAY_MS = [10, 30, 60] as const;
const PORT = 8080;
/** Timeout until all have joined, on a busy machine. */
const TOGETHER_MS = 120_000;
/** Requests that an engine runs concurrently; milliseconds of a response: of the first token, and per token. */
const [SLOTS, FIRST_MS, TOKEN_MS] = [6, 100, 1.5];
/** The trace at 60 times its speed has 474 requests/s: one in this number is sent, to each model. */
const [SPEED, ONE_IN] = [60, 80];
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

/** The trace's requests by origin: each request belongs to a region by its number. */
function traceOf(origin: number): { afterMs: number; delayMs: number }[] {
  const rows = gunzipSync(readFileSync(join(ROOT, 'research/papers/traces/azure-2023.csv.gz')))
    .toString()
    .trim()
    .split('\n')
    .slice(1)
    .filter((_, index) => index % ONE_IN === 0);
  return rows
    .filter((_, index) => index % CLUSTERS.length === origin)
    .map((line) => {
      const [at = '0', , output = '1'] = line.split(',');
      return { afterMs: (1e3 * Number(at)) / SPEED, delayMs: FIRST_MS + TOKEN_MS * Math.min(1_000, Number(output)) };
    });
}

async function identityOf(first: Gateway): Promise<string> {
  const identity = join(await temporaryDirectory('otela-identity'), 'identity.json');
  const delegated = execFileSync(NODE, [GATEWAY_MAIN, 'issuer', 'delegate', '--data', first.data], {
    encoding: 'utf8',
  });
  await writeFile(identity, delegated, { mode: 0o600 });
  return identity;
}

async function startGateways(network: Network): Promise<Gateway[]> {
  const names = CLUSTERS.map((cluster) => network.publish(cluster, PORT));
  const start = (cluster: Cluster, more: string[]) =>
    Gateway.start({
      prefix: on(`c${cluster}h2`),
      host: '0.0.0.0',
      port: PORT,
      publicHost: `198.51.100.2${cluster}`,
      args: ['--url', `http://${names[cluster - 1]}:${PORT}`, ...more],
      env: { GATEWAY_REGION: REGIONS[cluster] },
    });
  const first = await start(1, []);
  const followers = await Promise.all(
    ([2, 3] as const).map(async (cluster) =>
      start(cluster, ['--follow', `http://${names[0]}:${PORT}`, '--identity', await identityOf(first)]),
    ),
  );
  return [first, ...followers];
}

async function startRegion(first: Gateway, cluster: Cluster): Promise<void> {
  const token = await first.createJoinToken('lab', `c${cluster}`);
  const models = Object.values(MODELS).flatMap((model) => ['--model', model]);
  const engine = join(ROOT, 'test/support/engine.ts');
  const command = [NODE, engine, '--port', String(await freePort()), '--slots', String(SLOTS), ...models];
  const gateways = CLUSTERS.map((one) => `http://gateway${one}:${PORT}`);
  await startAgent({ gateways, token, command, args: ['--region', REGIONS[cluster]], prefix: on(`c${cluster}h1`) });
}

async function startPlanner([first, ...followers]: readonly Gateway[]): Promise<Managed> {
  if (first === undefined) throw new Error('no gateway');
  const keyFile = join(await temporaryDirectory('otela-plan'), 'key');
  // Only its gateway knows an admin key; all gateways know a created key.
  await writeFile(keyFile, await first.createKey('planner', { role: 'operator' }));
  await chmod(keyFile, 0o600);
  const where = ['--gateway', first.url, '--key-file', keyFile, '--model', MODELS.plan, '--apply', '--every', '2'];
  return new Managed([NODE, PLAN_MAIN, 'regions', ...where, ...followers.flatMap(({ url }) => ['--origin', url])], {
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
  requests: readonly (readonly { afterMs: number; delayMs: number }[])[],
  keys: Record<string, string>,
  regionOf: ReadonlyMap<string, string>,
): Promise<Answer[]> {
  const startAt = Date.now() + 5_000;
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
  const priced = good.map(({ region, delayMs }) => (PRICES[region] ?? 0) * delayMs);
  return {
    responses: good.length,
    failed: own.length - good.length,
    responseMs: mean(good.map(({ ms }) => ms)),
    usdKwh: mean(priced) / Math.max(1e-9, mean(good.map(({ delayMs }) => delayMs))),
    balance: mean(balances),
    change: mean(changes),
  };
}

it('a trace through three gateways: shares of each origin answer sooner than turns, and lose no request', async () => {
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
  await first.admin('PUT', 'regions/prices', {
    as_of: new Date().toISOString(),
    source: 'a test',
    prices: Object.entries(PRICES).map(([region, usd_kwh]) => ({ region, usd_kwh })),
  });
  const planner = await startPlanner(gateways);
  try {
    const requests = CLUSTERS.map((_, origin) => traceOf(origin));
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
    const answers = await replay(requests, keys, regionOf);
    const figures = Object.fromEntries(
      (Object.keys(MODELS) as Policy[]).map((policy) => [policy, figuresOf(answers, policy)]),
    ) as Record<Policy, Figures>;
    console.table(figures);
    const sent = requests.reduce((sum, own) => sum + own.length, 0);
    for (const { responses, failed } of Object.values(figures))
      expect({ responses, failed }).toEqual({ responses: sent, failed: 0 });
    expect(figures.plan.responseMs).toBeLessThan(figures['round-robin'].responseMs);
    expect(figures.plan.change).toBeGreaterThan(0);
  } catch (error) {
    throw planner.failure(errorText(error));
  }
});

const planSchema = z.object({
  models: z.record(z.string(), z.object({ origins: z.record(z.string(), z.unknown()).optional() })),
});
