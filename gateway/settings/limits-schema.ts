/** Limits of a key, a user or a project. Absent: no limit. */
import * as z from 'zod';
import { boundedRecord } from '../http/common-schemas.ts';

const count = z.number().int().min(1).max(1_000_000_000_000).optional();

const counted = {
  requests_per_minute: count,
  tokens_per_minute: count,
  concurrent_requests: count,
  /** Prompt and completion tokens per calendar month (UTC). */
  tokens_per_month: count,
};

/** Maximum models with their own limits, because the limits object needs a meter for each of them. */
const MODELS_MAX = 20;
/** Stands for every model without its own entry; each such model is counted separately. */
export const EVERY_OTHER_MODEL = '*';

export const limitsSchema = z.strictObject({
  ...counted,
  /** GPU seconds by calendar month, UTC; see shared/usage/gpu-share.ts. Lines of batches are not counted. */
  gpu_seconds_per_month: count,
  /** Seconds of transcribed, translated and spoken audio by calendar month, UTC; see `UsageRow.audioMs`. */
  audio_seconds_per_month: count,
  /** Generated images by calendar month, UTC. */
  images_per_month: count,
  /** Maximum reasoning tokens of one response; see reasoning-budget.ts. */
  reasoning_tokens_per_request: count,
  /**
   * Limits of single models, which apply in addition to the limits above. The name `*` stands for each model that is
   * not named.
   */
  models: boundedRecord(z.string().min(1).max(256), z.strictObject(counted), MODELS_MAX).optional(),
});

export type Limits = z.infer<typeof limitsSchema>;

/** True if at least one limit is set. */
export function isLimited({ limits }: { limits: Limits | null }): boolean {
  return limits !== null && Object.keys(limits).length > 0;
}

/** True if at least one of these sets limits the number of concurrent requests. */
export function limitsConcurrency(sets: readonly (Limits | undefined)[]): boolean {
  const all = sets.flatMap((set) => (set === undefined ? [] : [set, ...Object.values(set.models ?? {})]));
  return all.some(({ concurrent_requests }) => concurrent_requests !== undefined);
}

/** Returns the limits of one model. The model's name comes from a client, so it may be `__proto__`. */
export function limitsOfModel(limits: Limits | undefined, model: string): Limits | undefined {
  const { models } = limits ?? {};
  if (models === undefined) return undefined;
  return Object.hasOwn(models, model) ? models[model] : models[EVERY_OTHER_MODEL];
}

/** Name of the setting with the limits of each user without individual limits. */
export const USER_LIMITS = 'user_limits';
