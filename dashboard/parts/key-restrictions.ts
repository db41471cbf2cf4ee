/** Restrictions of keys and projects: from the fields of a form to the gateway's body. */
import type { Project } from '../api/resources.ts';
import { t } from '../texts/index.ts';
import type { FilledFields } from '../ui/form-values.ts';

const texts = t.narrowing;

/** The common members of a key and a project; absent while one is created. */
export type Restricted = Pick<
  Project,
  'limits' | 'models' | 'trusted_providers' | 'regions' | 'tiers' | 'no_track' | 'resume' | 'routing'
>;
export type WithLimits = Pick<Restricted, 'limits'>;
export const LIMIT_FIELDS = [
  'requests_per_minute',
  'tokens_per_minute',
  'concurrent_requests',
  'tokens_per_month',
  'gpu_seconds_per_month',
  'audio_seconds_per_month',
  'images_per_month',
  'reasoning_tokens_per_request',
] as const;
export const TIER_CHOICES = ['stable', 'volatile'] as const;
export const NO_TIER = 'none';

/** Keeps the limits per model of `before`: no field shows them. */
export function limitsFromForm(filled: FilledFields, before: WithLimits | undefined) {
  const set = LIMIT_FIELDS.flatMap((name) => {
    const value = filled.number(name);
    return value === null ? [] : [[name, value] as const];
  });
  const models = before?.limits?.models;
  const limits = { ...Object.fromEntries(set), ...(models !== undefined && { models }) };
  return { limits: Object.keys(limits).length === 0 ? null : limits };
}

export function restrictionsFrom(filled: FilledFields) {
  return {
    models: filled.allowed('models'),
    trusted_providers: filled.allowed('trusted_providers'),
    regions: filled.allowed('regions'),
    tiers: tiersFrom(filled.text('tiers')),
  };
}

function tiersFrom(chosen: string) {
  return chosen === '' ? null : TIER_CHOICES.filter((tier) => chosen.split(' ').includes(tier));
}

/** A summary of limits for a cell of a table. */
export function limitWords(limits: Restricted['limits']): string {
  const words = LIMIT_FIELDS.flatMap((name) => {
    const value = limits?.[name];
    return value === undefined ? [] : [texts.limitWords[name](value)];
  });
  return words.join(', ') || t.common.none;
}
