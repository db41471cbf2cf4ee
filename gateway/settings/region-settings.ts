/** Schemas of a planner's shares by region, and of electricity prices by region. */
import * as z from 'zod';
import {
  PLAN_HOLDS_MAX_MS,
  PLAN_MODELS_MAX,
  PLAN_ORIGINS_MAX,
  PLAN_REGIONS_MAX,
  type RegionPlan,
} from '../../shared/routing/region-shares.ts';
import { boundedRecord } from '../http/common-schemas.ts';

/** A region as nodes name it; empty: nodes without a region. */
const region = z.string().max(64);
const share = z.number().min(0).max(1);
const shares = boundedRecord(region, share, PLAN_REGIONS_MAX);

const modelSharesSchema = z.strictObject({
  shares,
  /**
   * By region: the regions that get its share if it has no nodes. Absent: all other regions, in proportion to their
   * shares.
   */
  spill: boundedRecord(region, shares, PLAN_REGIONS_MAX).optional(),
});

const modelPlanSchema = modelSharesSchema.extend({
  /** By region of the gateway or ingress that routes a request: its own shares. Other regions use the shares above. */
  origins: boundedRecord(region, modelSharesSchema, PLAN_ORIGINS_MAX).optional(),
});

/** The body of a planner's request. */
export const planBodySchema = z.strictObject({
  /** Name of the planner. While its plan is valid, plans of other planners are refused. */
  planner: z.string().min(1).max(64),
  /** Policy of the planner that made the plan, if it compares several. */
  policy: z.string().min(1).max(64).optional(),
  /** Must be larger than in the planner's previous plan. */
  sequence: z.int().min(1),
  /** Milliseconds for which the plan is valid after it was accepted, unless a newer plan replaces it. */
  holds_ms: z.int().min(1_000).max(PLAN_HOLDS_MAX_MS),
  models: boundedRecord(z.string().min(1).max(256), modelPlanSchema, PLAN_MODELS_MAX),
  /** Contexts that should be kept warm. Only shown to people; autoscalers read their own plan files. */
  warm: z
    .array(z.strictObject({ region, model: z.string().min(1).max(256), replicas: z.int().min(0).max(10_000) }))
    .max(PLAN_MODELS_MAX)
    .default([]),
  /** Notes for people, for example about prices that the planner could not use. */
  notes: z.array(z.string().max(300)).max(32).default([]),
});

export const storedPlanSchema = planBodySchema.extend({ taken_at: z.number(), expires_at: z.number() });
export type StoredPlan = z.infer<typeof storedPlanSchema>;

/**
 * Parses a stored plan. Undefined if no plan is stored, or if this version does not understand it; requests are then
 * routed without a plan.
 */
export function planOf(value: unknown): RegionPlan | undefined {
  const stored = storedPlanSchema.safeParse(value).data;
  if (stored === undefined) return undefined;
  const { planner, sequence, expires_at, models } = stored;
  return { planner, sequence, expires_at, models };
}

const priceSchema = z.strictObject({
  region,
  /** USD per kWh; negative if the market pays for consumption. */
  usd_kwh: z.number().min(-100).max(100),
  /** Prices by hour of the day in UTC, from 00:00. `usd_kwh` is then their mean, for people. */
  by_hour: z.array(z.number().min(-100).max(100)).length(24).optional(),
});

export const pricesBodySchema = z.strictObject({
  /** When these prices were published. */
  as_of: z.iso.datetime(),
  /** If `as_of` is longer ago than this, the prices count as stale. For a table that is valid for a year: a year. */
  stale_after_s: z
    .int()
    .min(60)
    .max(400 * 86_400)
    .default(2 * 3_600),
  /** Where the prices come from, for people. */
  source: z.string().max(300).default(''),
  prices: z.array(priceSchema).min(1).max(PLAN_REGIONS_MAX),
});
export type PriceTable = z.infer<typeof pricesBodySchema>;
