/** `GET /admin/regions`: the nodes, load, prices and round-trip times of each region, for planners and people. */
import * as z from 'zod';
import { MetricStore } from '../../../shared/metrics/metric-store.ts';
import { ApiError } from '../../../shared/openai/api-errors.ts';
import { PLAN_REGIONS_MAX } from '../../../shared/routing/region-shares.ts';
import { REGION_ROUND_TRIP, REGION_SERVICE } from '../../observe/metric-families.ts';
import { countedOf } from '../../observe/other-processes.ts';
import { metricsReporter } from '../../observe/request-log.ts';
import { isolateSnapshot, type RegistrySnapshot } from '../../registry/isolate-snapshot.ts';
import type { PriceTable } from '../../settings/region-settings.ts';
import { type AdminCall, type AdminRoute, route } from '../admin-route.ts';
import { listSchema } from '../field-schemas.ts';
import { readPrices } from './electricity-prices.ts';

/**
 * State of a region's price. `stale`: older than the table allows, or from the future. `missing`: there is no table, or
 * it does not contain the region.
 */
const PRICE_STATES = ['current', 'negative', 'stale', 'missing'] as const;
type PriceState = (typeof PRICE_STATES)[number];

const HOUR_MS = 3_600_000;
/** Prices are published at most a day ahead. A date that is further ahead comes from a wrong clock. */
const AHEAD_MAX_MS = 36 * HOUR_MS;

/**
 * Returns the current price of a kilowatt-hour in a region. A stale price is returned too; the planner decides what to
 * do with it.
 */
export function priceAt(
  table: PriceTable | undefined,
  region: string,
  now: number,
): { usd_kwh: number | null; state: PriceState } {
  const row = table?.prices.find((one) => one.region.toLowerCase() === region.toLowerCase());
  if (table === undefined || row === undefined) return { usd_kwh: null, state: 'missing' };
  const usd_kwh = row.by_hour?.[new Date(now).getUTCHours()] ?? row.usd_kwh;
  const age = now - Date.parse(table.as_of);
  const fresh = age <= table.stale_after_s * 1000 && age >= -AHEAD_MAX_MS;
  if (!fresh) return { usd_kwh, state: 'stale' };
  return { usd_kwh, state: usd_kwh < 0 ? 'negative' : 'current' };
}

const count = z.number().int().min(0);

const modelSchema = z.object({
  model: z.string(),
  /** Nodes in the region that serve the model now. */
  replicas: count,
  /** The nodes of `replicas` by hardware. `gpu`: the GPU class; null: the node has no GPU. */
  kinds: z.array(z.object({ gpu: z.string().nullable(), gpus: count, replicas: count })),
  /**
   * Number of the nodes of `replicas` that measure the power of their GPUs, and the sum of these powers. An agent
   * publishes its measurement at most every ten minutes.
   */
  power: z.object({ nodes: count, watts: z.number().min(0) }),
  /** Requests that run in the engines, as reported within the last 5 s. */
  running: count,
  waiting: count,
  /**
   * Responses since the gateway began to count, and the seconds that engines took for them; null: the counters cannot
   * be read.
   */
  answered: count.nullable(),
  service_s: z.number().min(0).nullable(),
});

const regionSchema = z.object({
  object: z.literal('region'),
  /** The region as nodes name it; empty: nodes without a region. */
  region: z.string(),
  /** Number of SERVING sessions. */
  nodes: count,
  /** Number of SERVING sessions that are suspected. */
  suspected: count,
  price: z.object({ usd_kwh: z.number().nullable(), state: z.enum(PRICE_STATES) }),
  /**
   * Histogram of the round-trip times from this gateway to the nodes. Each count is the number of round trips up to its
   * bound in seconds; the last count is for longer round trips. Null: never measured.
   */
  round_trips: z.object({ at_most_s: z.array(z.number()), counts: z.array(count) }).nullable(),
  models: z.array(modelSchema),
});
type Region = z.infer<typeof regionSchema>;
type Model = z.infer<typeof modelSchema>;

export const regionRoutes: readonly AdminRoute[] = [
  route({
    role: 'operator',
    method: 'get',
    path: '/regions',
    summary:
      'List regions with price, measured round trips, and models with their replicas and use. At most 64 regions: first regions with a price, then the largest region of each provider, then the second largest, and so on.',
    answer: listSchema(regionSchema).extend({
      /**
       * Region of this gateway, GATEWAY_REGION; empty: it has none. Round trips and counts are those of this gateway.
       */
      origin: z.string(),
    }),
    run: async (call) => ({
      object: 'list',
      data: await regionFacts(call),
      has_more: false,
      origin: call.env.GATEWAY_REGION ?? '',
    }),
  }),
];

async function regionFacts(call: AdminCall): Promise<Region[]> {
  const [view, table, counted] = await Promise.all([viewOf(call), readPrices(call), readCounts(call)]);
  const regions = new Map<string, Region>();
  const known = (name: string): Region => {
    let region = regions.get(name);
    if (region === undefined) {
      region = {
        object: 'region',
        region: name,
        nodes: 0,
        suspected: 0,
        price: priceAt(table, name, call.now),
        round_trips: null,
        models: [],
      };
      regions.set(name, region);
    }
    return region;
  };
  for (const entry of view.nodes.entries()) {
    if (entry.state !== 'SERVING') continue;
    const region = known(entry.region ?? '');
    region.nodes++;
    if (entry.suspected) region.suspected++;
  }
  addModels(view, known);
  const priced = pricedRegions(table, regions, known);
  if (counted !== undefined) addCounts(counted, regions);
  // The number of returned regions is limited, and any provider can invent regions. So regions in the operator's price
  // table come first, and a provider with many regions displaces only its own smaller regions.
  const places = placesOf(view);
  const placeOf = ({ region }: Region) => (priced.has(region) ? -1 : (places.get(region) ?? 0));
  const all = [...regions.values()].sort(
    (a, b) => placeOf(a) - placeOf(b) || b.nodes - a.nodes || (a.region < b.region ? -1 : 1),
  );
  return all.slice(0, PLAN_REGIONS_MAX);
}

/**
 * Returns the names of the regions with a price. If no node spells a region as the table does, the name is the spelling
 * that most nodes use. A region without nodes is included as long as it has a price.
 */
function pricedRegions(
  table: PriceTable | undefined,
  regions: ReadonlyMap<string, Region>,
  known: (name: string) => Region,
): Set<string> {
  const spelled = new Map<string, Region>();
  for (const region of regions.values()) {
    const name = region.region.toLowerCase();
    if (region.nodes > (spelled.get(name)?.nodes ?? 0)) spelled.set(name, region);
  }
  return new Set(
    table?.prices.map(({ region }) => {
      const found = regions.get(region) ?? spelled.get(region.toLowerCase()) ?? known(region);
      return found.region;
    }),
  );
}

/**
 * Ranks the regions of each provider by its number of nodes in them, largest first. A region with several providers
 * gets its best rank.
 */
function placesOf({ nodes }: RegistrySnapshot): Map<string, number> {
  const providers = new Map<string, Map<string, number>>();
  for (const { state, provider, region = '' } of nodes.entries()) {
    if (state !== 'SERVING') continue;
    const own = providers.get(provider) ?? new Map<string, number>();
    providers.set(provider, own.set(region, (own.get(region) ?? 0) + 1));
  }
  const places = new Map<string, number>();
  for (const own of providers.values())
    for (const [place, [region]] of [...own].sort(([, a], [, b]) => b - a).entries())
      places.set(region, Math.min(place, places.get(region) ?? place));
  return places;
}

function addModels({ nodes }: RegistrySnapshot, known: (name: string) => Region): void {
  for (const [id, { ready }] of nodes.models()) {
    for (const entry of ready) {
      const { models } = known(entry.region ?? '');
      const model = modelIn(models, id);
      model.replicas++;
      const gpu = entry.hardware.gpus[0]?.class ?? null;
      const gpus = entry.hardware.gpus.length;
      const kind = model.kinds.find((one) => one.gpu === gpu && one.gpus === gpus);
      if (kind === undefined) model.kinds.push({ gpu, gpus, replicas: 1 });
      else kind.replicas++;
      const watts = entry.gpu_state?.power_w;
      if (watts !== undefined) {
        model.power.nodes++;
        model.power.watts += watts * gpus;
      }
      const load = nodes.live.loadOf(entry.session);
      model.running += load?.running ?? 0;
      model.waiting += load?.waiting ?? 0;
    }
  }
}

function modelIn(models: Model[], id: string): Model {
  const found = models.find(({ model }) => model === id);
  if (found !== undefined) return found;
  const made: Model = {
    model: id,
    replicas: 0,
    kinds: [],
    power: { nodes: 0, watts: 0 },
    running: 0,
    waiting: 0,
    answered: null,
    service_s: null,
  };
  models.push(made);
  return made;
}

/**
 * Adds counts for regions with nodes. They include models that have no replica in the region now: a planner computes
 * the difference between two responses, so a count must not vanish.
 */
function addCounts(metrics: MetricStore, regions: ReadonlyMap<string, Region>): void {
  for (const region of regions.values()) for (const model of region.models) Object.assign(model, NOTHING);
  for (const { labels, value } of metrics.samples(REGION_ROUND_TRIP)) {
    const region = regions.get(labels[0] ?? '');
    if (region === undefined || !Array.isArray(value)) continue;
    const bounds = REGION_ROUND_TRIP.bounds;
    region.round_trips = { at_most_s: [...bounds], counts: value.slice(0, bounds.length + 1) };
  }
  for (const { labels, value } of metrics.samples(REGION_SERVICE)) {
    const [name = '', model = ''] = labels;
    const region = regions.get(name);
    if (region === undefined || !Array.isArray(value)) continue;
    const answered = value.slice(0, -1).reduce((sum, one) => sum + one, 0);
    Object.assign(modelIn(region.models, model), { answered, service_s: value.at(-1) ?? 0 });
  }
}

const NOTHING = { answered: 0, service_s: 0 };

/** @throws ApiError 503 */
async function viewOf({ env, c, now }: AdminCall): Promise<RegistrySnapshot> {
  try {
    const view = await isolateSnapshot.get(env, c.executionCtx, now, () => true);
    // Drops stale loads. Requests to models drop them too, but there may have been no such request for hours.
    view.nodes.live.expire(now);
    return view;
  } catch (cause) {
    throw new ApiError('server_is_overloaded', 'The registry cannot be reached. Try again shortly.', { cause });
  }
}

/** Reads the metrics. Undefined if they cannot be read; then no counts are returned, which is not the same as 0. */
async function readCounts({ env }: AdminCall): Promise<MetricStore | undefined> {
  try {
    await metricsReporter.flush(env);
    const metrics = new MetricStore();
    metrics.merge(await countedOf(env, 'all'));
    return metrics;
  } catch {
    return undefined;
  }
}
