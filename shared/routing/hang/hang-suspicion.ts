import type { BreakerState } from '../load.ts';

/** A node whose engine is taken to hang: when it is left alone, and when one request may try it (half-open). Plain data. */
export interface HangSuspicion {
  /** Milliseconds since the epoch, as is `until`. */
  since: number;
  /** From then on one request at a time tries it. */
  until: number;
  /** How long it is left alone after a probe that failed next. */
  pauseMs: number;
}

/** An engine that only stumbled, in a garbage collection or a slow disk, is back soon. */
const PAUSE_MS = 5_000;
/** A node that is well again waits no longer for the request that finds it out. */
const PAUSE_MAX_MS = 60_000;

export function suspectedAt(now: number): HangSuspicion {
  return { since: now, until: now + PAUSE_MS, pauseMs: 2 * PAUSE_MS };
}

/** The probe got no byte either. */
export function afterProbe({ since, pauseMs }: HangSuspicion, now: number): HangSuspicion {
  return { since, until: now + pauseMs, pauseMs: Math.min(PAUSE_MAX_MS, 2 * pauseMs) };
}

/** As routing is told: left alone for so long, or (undefined) trusted. `since` is now: of two words the newer one counts. */
export function breakerFor(pauseMs: number | undefined, now: number): BreakerState {
  if (pauseMs === undefined) return { state: 'closed', since: now, until: now };
  return { state: 'open', since: now, until: now + pauseMs, hangs: true };
}
