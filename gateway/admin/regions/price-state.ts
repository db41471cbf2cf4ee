import type { PriceTable } from '../../accounts/region-settings.ts';

/** `stale`: older than the table says that it may be. `missing`: the table does not name the region, or there is none. */
export const PRICE_STATES = ['current', 'negative', 'stale', 'missing'] as const;
type PriceState = (typeof PRICE_STATES)[number];

const HOUR_MS = 3_600_000;
/** Prices of a day are published the day before; what is of a later time is of a clock that is wrong. */
const AHEAD_MAX_MS = 36 * HOUR_MS;

/** What a kilowatt-hour costs in a region now. A price that is stale is told all the same: what to do without is the planner's business. */
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
