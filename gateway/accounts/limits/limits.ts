/** What a key, a person or a project may use. An absent member is no limit. */
import * as z from 'zod';
import { boundedRecord } from '../../http/schema-parts.ts';

const count = z.number().int().min(1).max(1_000_000_000_000).optional();

const counted = {
  requests_per_minute: count,
  tokens_per_minute: count,
  concurrent_requests: count,
  /** Prompt and completion, by calendar month, UTC. */
  tokens_per_month: count,
};

/** Each model is a meter of its own in the limits' object. */
const MODELS_MAX = 20;
/** In the place of a model's name: each model that is not named, by itself. */
export const EVERY_OTHER_MODEL = '*';

export const limitsSchema = z.strictObject({
  ...counted,
  /** By calendar month, UTC: see shared/usage/gpu-share.ts. Lines of batches use none. */
  gpu_seconds_per_month: count,
  /** Of one answer: see reasoning.ts. */
  reasoning_tokens_per_request: count,
  /** Of one model, besides those above; `*`: of each model that is not named. */
  models: boundedRecord(z.string().min(1).max(256), z.strictObject(counted), MODELS_MAX).optional(),
});

export type Limits = z.infer<typeof limitsSchema>;

/** Whether a key's limits limit anything. */
export function isLimited({ limits }: { limits: Limits | null }): boolean {
  return limits !== null && Object.keys(limits).length > 0;
}

/** Whether any of these limits how many requests run at the same time. */
export function limitsConcurrency(sets: readonly (Limits | undefined)[]): boolean {
  const all = sets.flatMap((set) => (set === undefined ? [] : [set, ...Object.values(set.models ?? {})]));
  return all.some(({ concurrent_requests }) => concurrent_requests !== undefined);
}

/** What of `limits` holds for one model alone. The model's name is a client's word. */
export function limitsOfModel(limits: Limits | undefined, model: string): Limits | undefined {
  const { models } = limits ?? {};
  if (models === undefined) return undefined;
  return Object.hasOwn(models, model) ? models[model] : models[EVERY_OTHER_MODEL];
}

/** The setting with the limits of each person who has none of their own. */
export const USER_LIMITS = 'user_limits';
