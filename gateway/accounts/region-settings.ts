/** A plan of shares by region, and what electricity costs where, as they are stored and carried. */
import * as z from 'zod';
import {
  PLAN_HOLDS_MAX_MS,
  PLAN_MODELS_MAX,
  PLAN_REGIONS_MAX,
  type RegionPlan,
} from '../../shared/routing/region-shares.ts';
import { boundedRecord } from '../http/schema-parts.ts';

/** As nodes name it; empty: those that name none. */
const region = z.string().max(64);
const share = z.number().min(0).max(1);
const shares = boundedRecord(region, share, PLAN_REGIONS_MAX);

const modelSharesSchema = z.strictObject({
  shares,
  /** Where the share of a region goes that has no node any more, by that region; left out: to the others in proportion. */
  spill: boundedRecord(region, shares, PLAN_REGIONS_MAX).optional(),
});

/** What a planner sends. */
export const planBodySchema = z.strictObject({
  /** Names the planner: while its plan holds, no other planner's is taken. */
  planner: z.string().min(1).max(64),
  /** Larger than that of the planner's plan before. */
  sequence: z.int().min(1),
  /** The plan is over so long after it was taken, unless a newer one comes. */
  holds_ms: z.int().min(1_000).max(PLAN_HOLDS_MAX_MS),
  models: boundedRecord(z.string().min(1).max(256), modelSharesSchema, PLAN_MODELS_MAX),
  /** Contexts that are to be kept warm, for people to see: factories read their own files. */
  warm: z
    .array(z.strictObject({ region, model: z.string().min(1).max(256), replicas: z.int().min(0).max(10_000) }))
    .max(PLAN_MODELS_MAX)
    .default([]),
  /** What the planner wants people to know, e.g. prices that it could not use. */
  notes: z.array(z.string().max(300)).max(32).default([]),
});

export const storedPlanSchema = planBodySchema.extend({ taken_at: z.number(), expires_at: z.number() });
export type StoredPlan = z.infer<typeof storedPlanSchema>;

/** Undefined where none is stored, or none that this version understands: requests are routed without one. */
export function planOf(value: unknown): RegionPlan | undefined {
  const stored = storedPlanSchema.safeParse(value).data;
  if (stored === undefined) return undefined;
  const { planner, sequence, expires_at, models } = stored;
  return { planner, sequence, expires_at, models };
}

export const priceSchema = z.strictObject({
  region,
  /** USD per kWh; negative where the market pays for what is used. */
  usd_kwh: z.number().min(-100).max(100),
  /** By hour of UTC instead, from 00:00; `usd_kwh` is their mean then, for people. */
  by_hour: z.array(z.number().min(-100).max(100)).length(24).optional(),
});

export const pricesBodySchema = z.strictObject({
  /** When these prices were published. */
  as_of: z.iso.datetime(),
  /** Older prices say nothing any more; a table that holds for a year says so here. */
  stale_after_s: z
    .int()
    .min(60)
    .max(400 * 86_400)
    .default(2 * 3_600),
  /** Where they are from. */
  source: z.string().max(300).default(''),
  prices: z.array(priceSchema).min(1).max(PLAN_REGIONS_MAX),
});
export type PriceTable = z.infer<typeof pricesBodySchema>;
