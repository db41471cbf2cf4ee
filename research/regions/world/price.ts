import { readFileSync } from 'node:fs';
import * as z from 'zod';
import { seededRandom } from '../../../scheduler/simulator/random.ts';
import { researchData } from '../../data-path.ts';
import type { Topology } from './topology.ts';

const fileSchema = z.object({
  dated: z.iso.date(),
  zones: z.array(z.object({ zone: z.string(), usd_kwh: z.number().finite(), source: z.string() })).max(1_000),
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
/** Generated graphs have no country: their levels are drawn from this range, USD per kWh. Synthetic. */
const SYNTHETIC_LEVELS = [0.05, 0.15] as const;

/** Levels of `data/regions/prices.json` by zone, with the synthetic curve of a day. */
export function pricesOf(topology: Topology, seed: number): Prices {
  const { zones } = fileSchema.parse(JSON.parse(readFileSync(researchData('regions/prices.json'), 'utf8')));
  const known = new Map(zones.map((one) => [one.zone, one.usd_kwh]));
  const random = seededRandom(seed);
  const [low, high] = SYNTHETIC_LEVELS;
  const levels = topology.regions.map(({ zone }) => known.get(zone) ?? low + (high - low) * random());
  const hours = topology.regions.map(({ zone, at }) => (known.has(zone) ? START_HOUR + at[0] / 15 : START_HOUR));
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
