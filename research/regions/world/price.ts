import { readFileSync } from 'node:fs';
import * as z from 'zod';
import { seededRandom } from '../../../scheduler/simulator/random.ts';
import { researchData } from '../../data-path.ts';
import type { Topology } from './topology.ts';

const fileSchema = z.object({
  dated: z.iso.date(),
  zones: z
    .array(
      z.object({
        zone: z.string(),
        usd_kwh: z.number().finite(),
        spread: z.number().min(0).max(1).default(0),
        source: z.string(),
      }),
    )
    .max(1_000),
});

/** Prices of electricity. */
export interface Prices {
  /** USD per kWh in a region at a time; NaN: unknown. */
  at(region: number, nowS: number): number;
  /** When the price of that time was published, seconds; a feed that stopped keeps its last time. */
  publishedS(region: number, nowS: number): number;
}

/**
 * Synthetic curve of a day, as a factor by the hour of local solar time: low at night and at noon, when the sun shines,
 * high in the morning and the evening. No hourly prices were available. Its mean is 1.
 */
const DAY_CURVE = [
  0.84, 0.8, 0.78, 0.78, 0.82, 0.92, 1.08, 1.2, 1.18, 1.05, 0.94, 0.86, 0.82, 0.82, 0.86, 0.95, 1.1, 1.28, 1.38, 1.34,
  1.22, 1.1, 0.98, 0.9,
];
/** Hour of UTC when a run begins. */
const START_HOUR = 6;
/** The zone of regions in generated graphs, which have no country: each region has its own level. */
const NO_ZONE = 'none';

/**
 * Levels of `data/regions/prices.json` by zone, with the synthetic curve of a day. A zone without a cited figure draws
 * its level from the file's range: other seeds give other levels, so that no single guess decides a comparison.
 */
export function pricesOf(topology: Topology, seed: number): Prices {
  const { zones } = fileSchema.parse(JSON.parse(readFileSync(researchData('regions/prices.json'), 'utf8')));
  const known = new Map(zones.map((one) => [one.zone, one]));
  const random = seededRandom(seed);
  const drawn = new Map<string, number>();
  const levels = topology.regions.map(({ zone, name }) => {
    const row = known.get(zone) ?? known.get(NO_ZONE);
    if (row === undefined) return Number.NaN;
    const key = row.zone === NO_ZONE ? name : zone;
    const level = drawn.get(key) ?? row.usd_kwh * (1 + row.spread * (2 * random() - 1));
    drawn.set(key, level);
    return level;
  });
  const hours = topology.regions.map(({ zone, at }) => (zone === NO_ZONE ? START_HOUR : START_HOUR + at[0] / 15));
  return {
    at(region, nowS) {
      const hour = (hours[region] ?? 0) + nowS / 3600 + 24;
      return (levels[region] ?? Number.NaN) * (DAY_CURVE[Math.floor(hour) % 24] ?? 1);
    },
    publishedS: (_region, nowS) => Math.floor(nowS / 3600) * 3600,
  };
}

/** A price older than this is stale: day-ahead prices change each hour. */
const PRICE_STALE_S = 2 * 3600;

/**
 * Prices for a plan, by region. A missing or stale price becomes the median of the others, so that a broken feed
 * neither attracts nor repels tasks. A negative price becomes 0, because planning would otherwise waste energy.
 */
export function plannablePrices(prices: Prices, regions: number, nowS: number): number[] {
  const raw = Array.from({ length: regions }, (_, region) => {
    const fresh = nowS - prices.publishedS(region, nowS) <= PRICE_STALE_S;
    const price = prices.at(region, nowS);
    return fresh && Number.isFinite(price) ? Math.max(0, price) : Number.NaN;
  });
  const sorted = raw.filter((price) => Number.isFinite(price)).sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
  return raw.map((price) => (Number.isFinite(price) ? price : median));
}
