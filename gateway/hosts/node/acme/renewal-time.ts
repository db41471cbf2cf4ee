/** When a certificate is replaced. */
import { backoffMs } from '../../../../shared/timing/backoff.ts';

/** Validity of a certificate; milliseconds since the epoch. */
export interface Validity {
  from: number;
  until: number;
}

/** Part of its validity that a certificate has left when it is replaced. Let's Encrypt recommends a third. */
const LEFT = 1 / 3;
/** Let's Encrypt allows five failures for a name in an hour. */
const RETRY = { minMs: 30 * 60_000, maxMs: 12 * 60 * 60_000 };

/** Milliseconds until the certificate must be replaced; 0: now. */
export function dueInMs(validity: Validity | undefined, now: number): number {
  if (validity === undefined) return 0;
  const due = validity.until - (validity.until - validity.from) * LEFT;
  return Math.max(0, due - now);
}

/**
 * Milliseconds until the next order after `failures` failures in a row.
 * @param failures at least 1
 */
export function retryMs(failures: number): number {
  return backoffMs(failures - 1, RETRY);
}

/** Longest pause after a new certificate. */
const APART_MS = 60 * 60_000;
const APART_MIN_MS = 1_000;

/**
 * Milliseconds between a new certificate and the next order. An authority that sends certificates at their end would
 * otherwise get an order after the other.
 */
export function ordersApartMs(validity: Validity | undefined): number {
  if (validity === undefined) return APART_MS;
  return Math.min(APART_MS, Math.max(APART_MIN_MS, (validity.until - validity.from) / 3));
}
