/** A statement: what the usage of a month costs. Amounts are exact decimal numbers, so that sums are equal to the cent. */
import { matchesModelPattern } from '../accounts/account.ts';
import { PRICE_DECIMALS, type PriceRule, type Prices } from '../settings/price-settings.ts';

/** Usage of one day, project, model and provider. Counts are integers. */
export interface DailyUsage {
  day: string;
  project: string;
  model: string;
  provider: string;
  requests: number;
  prompt_tokens: number;
  cached_tokens: number;
  completion_tokens: number;
  /** Milliseconds of one GPU. */
  gpu_ms: number;
}

/** A line of a statement: usage of a month. */
export interface StatementLine extends Omit<DailyUsage, 'day'> {
  /** A decimal number with the decimals of the prices. */
  amount: string;
}

const MILLION = 1_000_000n;
const PRICE_SCALE = 10n ** BigInt(PRICE_DECIMALS);
/**
 * Costs are integers of 10^-(PRICE_DECIMALS + 6) / 18: a millionth of a price is 18 of these parts, and the price of a
 * millisecond, which is a 3,600,000th of the price of an hour, is five of them. So no amount is rounded before its line.
 */
const TOKEN_PARTS = 18n;
const GPU_MS_PARTS = 5n;

/**
 * Returns a line for each project, model and provider, in the order of their first day. Rounding happens once, in each
 * line, half up.
 */
export function statementLines(usage: readonly DailyUsage[], prices: Prices | undefined): StatementLine[] {
  const lines = new Map<string, Omit<StatementLine, 'amount'> & { exact: bigint }>();
  for (const one of usage) {
    const { day: _, ...first } = one;
    const id = JSON.stringify([one.project, one.model, one.provider]);
    const exact = prices === undefined ? 0n : exactCost(one, priceOf(one, prices));
    const line = lines.get(id);
    if (line === undefined) {
      lines.set(id, { ...first, exact });
      continue;
    }
    line.requests += one.requests;
    line.prompt_tokens += one.prompt_tokens;
    line.cached_tokens += one.cached_tokens;
    line.completion_tokens += one.completion_tokens;
    line.gpu_ms += one.gpu_ms;
    line.exact += exact;
  }
  const decimals = prices?.decimals ?? 0;
  return [...lines.values()].map(({ exact, ...line }) => ({
    ...line,
    amount: decimalText(rounded(exact, decimals), decimals),
  }));
}

/** Returns the sum of decimal numbers that have the same number of decimals. */
export function sumAmounts(amounts: readonly string[], decimals: number): string {
  const sum = amounts.reduce((total, amount) => total + BigInt(amount.replace('.', '')), 0n);
  return decimalText(sum, decimals);
}

function priceOf({ day, model, provider }: DailyUsage, { rules }: Prices): PriceRule | undefined {
  return rules.find(
    ({ models, providers, from, to }) =>
      (models === undefined || matchesModelPattern(models, model)) &&
      (providers === undefined || providers.includes(provider)) &&
      (from === undefined || day >= from) &&
      (to === undefined || day <= to),
  );
}

/** Returns the cost; TOKEN_PARTS explains the unit. */
function exactCost(usage: DailyUsage, rule: PriceRule | undefined): bigint {
  if (rule === undefined) return 0n;
  const { prompt, cached = prompt, completion, request, gpu_hour: gpuHour } = rule;
  // An engine that reports more cached tokens than prompt tokens must not make a negative amount.
  const fromCache = BigInt(Math.min(usage.cached_tokens, usage.prompt_tokens));
  const computed = BigInt(usage.prompt_tokens) - fromCache;
  const tokens =
    computed * scaled(prompt) + fromCache * scaled(cached) + BigInt(usage.completion_tokens) * scaled(completion);
  const requests = BigInt(usage.requests) * scaled(request) * MILLION;
  return (tokens + requests) * TOKEN_PARTS + BigInt(usage.gpu_ms) * scaled(gpuHour) * GPU_MS_PARTS;
}

/** Converts a price to an integer of 10^-PRICE_DECIMALS. */
function scaled(price: number): bigint {
  return BigInt(price.toFixed(PRICE_DECIMALS).replace('.', ''));
}

function rounded(exact: bigint, decimals: number): bigint {
  const divisor = (TOKEN_PARTS * PRICE_SCALE * MILLION) / 10n ** BigInt(decimals);
  return (2n * exact + divisor) / (2n * divisor);
}

/** Writes an integer of 10^-decimals, which is not negative. */
function decimalText(value: bigint, decimals: number): string {
  if (decimals === 0) return String(value);
  const digits = String(value).padStart(decimals + 1, '0');
  return `${digits.slice(0, -decimals)}.${digits.slice(-decimals)}`;
}
