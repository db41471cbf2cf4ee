/** The gateway's settings for retries of failed attempts. */
import * as z from 'zod';
import { RETRY_SHARE } from '../../shared/routing/retry-budget.ts';
import { RETRIES_MAX } from '../../shared/routing/retry-policy.ts';

/** Maximum attempts after the first; 0: no retries. */
export const maxRetriesSchema = z.int().min(0).max(10);

/** Maximum retries of an isolate, as a share of its requests. */
export const retryShareSchema = z.number().min(0).max(1);

export interface RetrySettings {
  maxRetries: number;
  retryShare: number;
}

export const RETRY_DEFAULTS: RetrySettings = { maxRetries: RETRIES_MAX, retryShare: RETRY_SHARE };

/** Reads these settings from all stored settings. */
export function retrySettings(byName: ReadonlyMap<string, unknown>): RetrySettings {
  return {
    maxRetries: maxRetriesSchema.safeParse(byName.get('max_retries')).data ?? RETRIES_MAX,
    retryShare: retryShareSchema.safeParse(byName.get('retry_share')).data ?? RETRY_SHARE,
  };
}
