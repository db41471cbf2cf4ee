import type { BreakerState } from '../node-load.ts';

/**
 * A suspicion that a node's engine hangs: until when the node is avoided, and from when on one request at a time may
 * probe it (half-open). Plain data.
 */
export interface HangSuspicion {
  /** When the suspicion began, in milliseconds since 1970. */
  since: number;
  /** Time in milliseconds since 1970 from which on one request at a time probes the node. */
  until: number;
  /** The pause after the next failed probe, in milliseconds. */
  pauseMs: number;
}

/** First pause. An engine that only paused, for a garbage collection or a slow disk, answers again soon. */
const PAUSE_MS = 5_000;
/** Maximum pause, so that a recovered node is probed within a minute. */
const PAUSE_MAX_MS = 60_000;

export function newSuspicion(now: number): HangSuspicion {
  return { since: now, until: now + PAUSE_MS, pauseMs: 2 * PAUSE_MS };
}

/** The suspicion after a probe that received no byte. */
export function afterFailedProbe({ since, pauseMs }: HangSuspicion, now: number): HangSuspicion {
  return { since, until: now + pauseMs, pauseMs: Math.min(PAUSE_MAX_MS, 2 * pauseMs) };
}

/**
 * The breaker state to publish: open for `pauseMs`, or closed if `pauseMs` is undefined. Its `since` is `now`, so that
 * it replaces older states.
 */
export function breakerStateFor(pauseMs: number | undefined, now: number): BreakerState {
  if (pauseMs === undefined) return { state: 'closed', since: now, until: now };
  return { state: 'open', since: now, until: now + pauseMs, hangs: true };
}
