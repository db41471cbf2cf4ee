/** When an attempt that failed is tried on another node (design: "life of a request", 7). */

/** First attempt and retries together. */
export const ATTEMPTS_MAX = 4;

/**
 * Failures after which another node may do better. Data, not branches: a time-out is not in it (a slow engine would only make a
 * second one slow), nor is an engine's 4xx (it would say the same).
 */
const TRY_ANOTHER: ReadonlySet<string> = new Set([
  'unreachable',
  'not_accepted',
  'lost',
  'refused',
  'unknown',
  'engine_unreachable',
  'engine_closed',
  'overloaded',
  'failed',
]);

/** Failures that say something about the node's path: it is suspected until it publishes again. */
const SUSPICIOUS: ReadonlySet<string> = new Set(['not_accepted', 'lost']);

/** Statuses of an engine that cannot serve now; another replica may. */
const BUSY_STATUS: ReadonlySet<number> = new Set([429, 502, 503]);

export function mayTryAnother(failure: string): boolean {
  return TRY_ANOTHER.has(failure);
}

export function castsSuspicion(failure: string): boolean {
  return SUSPICIOUS.has(failure);
}

export function isBusyStatus(status: number): boolean {
  return BUSY_STATUS.has(status);
}
