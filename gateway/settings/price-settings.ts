/** What usage costs, in any unit: money, or service units of an allocation. */
import * as z from 'zod';

/** Rules of one gateway. Each statement tries them in order for each of its lines. */
const RULES_MAX = 500;
/** Decimals of a price. With nine, a price per million tokens is exact to a quadrillionth of a unit per token. */
export const PRICE_DECIMALS = 9;

/** A price for a million tokens, for one request, or for an hour of one GPU. */
const price = z
  .number()
  .min(0)
  .max(1_000_000)
  .refine((value) => Number(value.toFixed(PRICE_DECIMALS)) === value, `has more than ${PRICE_DECIMALS} decimals`);

const ruleSchema = z.strictObject({
  /** Names of models; a name that ends in `*` matches all models with that prefix. Absent: all. */
  models: z.array(z.string().min(1).max(256)).min(1).max(100).optional(),
  /** Ids of the providers of the nodes that ran the requests. Absent: all. */
  providers: z.array(z.string().min(1).max(128)).min(1).max(100).optional(),
  /** First and last day of the price, UTC, both included. Absent: no bound. */
  from: z.iso.date().optional(),
  to: z.iso.date().optional(),
  /** Per million prompt tokens. */
  prompt: price.default(0),
  /** Per million prompt tokens that the engine had cached. Absent: the same as `prompt`. */
  cached: price.optional(),
  /** Per million completion tokens, which include reasoning tokens. */
  completion: price.default(0),
  /** Per request. */
  request: price.default(0),
  /** Per hour of one GPU; see `UsageRow.gpuMs`. */
  gpu_hour: price.default(0),
});
export type PriceRule = z.infer<typeof ruleSchema>;

export const pricesSchema = z.strictObject({
  /** The unit of all prices and amounts, as statements show it. */
  unit: z.string().regex(/^[\p{L}\p{Sc}][\p{L}\p{N}\p{Sc} ./-]{0,15}$/u, 'must be a short name such as CHF or SU'),
  /** Decimals of an amount. Each line of a statement is rounded to them. */
  decimals: z.int().min(0).max(6).default(2),
  /** The first rule that matches the model, the provider and the day counts. Usage without a rule costs nothing. */
  rules: z.array(ruleSchema).max(RULES_MAX).default([]),
});
export type Prices = z.infer<typeof pricesSchema>;
