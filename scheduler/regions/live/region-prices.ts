/** Prices for a plan, by region, with notes about corrections. */
import type { RegionFacts } from '../../live/region-facts.ts';

interface PlannablePrices {
  /** USD per kWh, at least 0. */
  usdKwh: ReadonlyMap<string, number>;
  notes: string[];
}

/**
 * A missing or stale price becomes the median of the current ones, so that a broken feed neither attracts nor repels
 * requests. A negative price becomes 0, because planning would otherwise waste energy. Without a current price all are
 * 0, and only network and computation count.
 */
export function plannablePrices(facts: readonly Pick<RegionFacts, 'region' | 'price'>[]): PlannablePrices {
  const isCurrent = ({ price }: Pick<RegionFacts, 'price'>) =>
    price.usd_kwh !== null &&
    Number.isFinite(price.usd_kwh) &&
    (price.state === 'current' || price.state === 'negative');
  const known = facts.filter(isCurrent).map(({ price }) => Math.max(0, price.usd_kwh ?? 0));
  const sorted = [...known].sort((a, b) => a - b);
  const median = sorted[Math.floor(sorted.length / 2)];
  const notes: string[] = [];
  if (median === undefined && facts.length > 0) notes.push('there is no current price: the plan ignores electricity');
  const usdKwh = new Map<string, number>();
  for (const one of facts) {
    const { region, price } = one;
    const usd = isCurrent(one) ? Math.max(0, price.usd_kwh ?? 0) : (median ?? 0);
    usdKwh.set(region, usd);
    if (median === undefined) continue;
    const name = region === '' ? 'nodes without a region' : region;
    if (price.state === 'negative') notes.push(`the price of ${name} is negative: assuming 0`);
    else if (!isCurrent(one)) notes.push(`the price of ${name} is ${price.state}: assuming the median, ${usd} USD/kWh`);
  }
  return { usdKwh, notes };
}
